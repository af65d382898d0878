// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/log.h"
#include "collectives/algorithms.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

template <typename T>
void Fill(void* output, size_t count, T value) {
  std::fill_n(static_cast<T*>(output), count, value);
}

// What a call with a non-finite value returns: quiet NaNs, so that a loss scaler notices.
void FillNan(void* output, size_t count, kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return Fill<uint32_t>(output, count, 0x7fc0'0000u);
    case kernels::DataType::kF16:
      return Fill<uint16_t>(output, count, 0x7e00u);
    case kernels::DataType::kBf16:
      return Fill<uint16_t>(output, count, 0x7fc0u);
  }
}

void Add(std::atomic<uint64_t>& counter, uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

PlanKey KeyOf(const Compressor::Config& config, bool is_one_exchange) {
  return {
      .collective = Collective::kAllReduce,
      .codec = config.kind,
      .is_one_exchange = is_one_exchange,
      .type = config.type,
      .block = config.block,
      .chunk_alignment = config.chunk_alignment,
      .count = config.count,
  };
}

PlanKey DenseKey(size_t count, kernels::DataType type) {
  return {.collective = Collective::kAllReduce, .type = type, .count = count};
}

// Of the first such call of a tensor; the stats count the others. The call is over: a line that
// cannot be written is no error of it.
void TellNonfinite(int rank, const CallDescriptor& call) noexcept {
  if (!LogEnabled(LogLevel::kInfo)) return;
  try {
    Log(LogLevel::kInfo, "rank {}: {}: a value is not finite, so the output is NaN on all ranks",
        rank, Describe(call));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Result<PlannedCompressor> Engine::CreateCompressor(Compressor::Config config) {
  ONEBIT_ASSIGN_OR_RETURN(NewBinding binding, PlanCompressor(config));
  config.server_elements = binding.server_elements;
  ONEBIT_ASSIGN_OR_RETURN(Compressor compressor, Compressor::Create(config));
  return PlannedCompressor{std::move(compressor), std::move(binding.plan), comm_.id()};
}

Result<Engine::NewBinding> Engine::PlanCompressor(const Compressor::Config& config) {
  const auto ranks = static_cast<uint32_t>(comm_.ranks());
  const bool is_one_exchange = UsesOneExchange(config.count, ranks, comm_.options());
  auto plan = PlanFor(KeyOf(config, is_one_exchange));
  ONEBIT_TRY(ReservePackets(*plan));
  const size_t served =
      is_one_exchange ? config.count
                      : ChunksOf(plan->key, ranks).Chunk(static_cast<size_t>(comm_.rank())).count;
  return NewBinding{std::move(plan), served};
}

Status Engine::ReserveSum(size_t count, kernels::DataType type) {
  return ReservePackets(*PlanFor(DenseKey(count, type)));
}

Status Engine::Sum(void* values, size_t count, kernels::DataType type) {
  const PlanKey key = DenseKey(count, type);
  CallDescriptor descriptor = DescriptorOf(key);
  descriptor.op = ReduceOp::kSum;
  return Run({key, descriptor, {values, values, count, type}});
}

Engine::Request Engine::AllReduceRequest(const Buffers& buffers, ReduceOp op,
                                         PlannedCompressor* compressor) const {
  PlanKey key;
  if (compressor != nullptr) {
    key = compressor->plan->key;
  } else {
    key = DenseKey(buffers.count, buffers.type);
    key.is_native = comm_.has_native_dense() && buffers.type == kernels::DataType::kF32;
  }
  CallDescriptor descriptor = DescriptorOf(key);
  descriptor.op = op;
  if (compressor != nullptr) {
    const Compressor& state = compressor->compressor;
    descriptor.tensor_id = state.config().tensor_id;
    descriptor.rule = state.config().rule;
    descriptor.has_server_residual = state.config().has_server_residual;
    descriptor.mask_digest = state.mask_digest();
    if (key.is_one_exchange && state.server_in(0) != nullptr) {
      descriptor.is_replica_bf16 = state.config().residual_type == kernels::DataType::kBf16;
      descriptor.is_replica_transactional = state.config().is_transactional;
      descriptor.replica_age = state.age();
    }
  }
  return {key, descriptor, buffers, compressor};
}

Engine::Request Engine::BroadcastRequest(const Buffers& buffers, uint32_t root) const {
  const PlanKey key = {.collective = Collective::kBroadcast,
                       .type = buffers.type,
                       .root = root,
                       .count = buffers.count};
  CallDescriptor descriptor = DescriptorOf(key);
  descriptor.tensor_id = root;
  return {key, descriptor, buffers};
}

Engine::Request Engine::BarrierRequest() const {
  const PlanKey key = {.collective = Collective::kBarrier};
  return {key, DescriptorOf(key), {}};
}

Status Engine::Call(const Request& request) {
  ONEBIT_TRY(comm_.Enter());
  const CommUse use(comm_);
  return Run(request);
}

Status Engine::AllReduce(const Buffers& buffers, ReduceOp op, PlannedCompressor* compressor) {
  return Call(AllReduceRequest(buffers, op, compressor));
}

Status Engine::Broadcast(const Buffers& buffers, uint32_t root) {
  return Call(BroadcastRequest(buffers, root));
}

Status Engine::Barrier() { return Call(BarrierRequest()); }

CallDescriptor Engine::DescriptorOf(const PlanKey& key) const {
  return {
      .comm_id = comm_.id(),
      .collective = key.collective,
      .count = key.count,
      .type = key.type,
      .codec = key.codec,
      .block = key.block,
      .chunk_alignment = key.chunk_alignment,
      .is_one_exchange = key.is_one_exchange,
  };
}

Status Engine::CheckThread() {
  const Status refusal = comm_.ranks() > 1 ? comm_.endpoint().Progress() : OkStatus();
  return refusal.code() == Code::kInvalidUsage ? refusal : OkStatus();
}

Status Engine::Run(const Request& request) {
  const auto plan = PlanFor(request);
  // Before the call is numbered: without memory nothing was sent, and the call can be made again.
  ONEBIT_TRY(ReservePackets(*plan));
  ONEBIT_TRY(executor_.StartThreads(plan->key.count));
  ONEBIT_TRY(CheckThread());
  const auto begin = Clock::now();
  Status status = RunNumbered(*plan, request);
  CountMessages();
  CommCounters& counters = comm_.counters();
  Add(counters.call_ns,
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count()));
  if (status.ok()) {
    CountCall(request);
  } else {
    Add(counters.failed_calls, 1);
  }
  return status;
}

void Engine::CountMessages() {
  CommCounters& counters = comm_.counters();
  const Endpoint::Counters sent = comm_.endpoint().counters();
  counters.bytes_sent.store(sent.bytes_sent, std::memory_order_relaxed);
  counters.messages_sent.store(sent.messages_sent, std::memory_order_relaxed);
}

void Engine::CountCall(const Request& request) {
  CommCounters& counters = comm_.counters();
  Add(request.compressor == nullptr ? counters.dense_calls : counters.compressed_calls, 1);
  Add(counters.logical_bytes, request.buffers.count * kernels::BytesOf(request.buffers.type));
}

Status Engine::RunNumbered(const Plan& plan, const Request& request) {
  onebit::Call call = CallOf(request, plan, packets_.data());
  call.descriptor.sequence = comm_.NextSequence();
  const Status status = executor_.Run({.plan = &plan,
                                       .descriptor = call.descriptor,
                                       .calls = {&call, 1},
                                       .packets = packets_.data(),
                                       .digests = {}});
  if (!status.ok()) {
    if (request.compressor != nullptr) request.compressor->compressor.DiscardFailed();
    return status;
  }
  Add(comm_.counters().codec_ns, executor_.codec_ns());
  Settle(request, call.descriptor.sequence, executor_.is_finite(0));
  return OkStatus();
}

onebit::Call Engine::CallOf(const Request& request, const Plan& plan, std::byte* packets) const {
  return {
      .plan = &plan,
      .descriptor = request.descriptor,
      .input = static_cast<const std::byte*>(request.buffers.input),
      .output = static_cast<std::byte*>(request.buffers.output),
      .packets = packets,
      .compressor = request.compressor == nullptr ? nullptr : &request.compressor->compressor,
  };
}

void Engine::Settle(const Request& request, uint64_t sequence, bool is_finite) {
  if (request.compressor == nullptr) return;
  Compressor& state = request.compressor->compressor;
  if (!is_finite) {
    const Buffers& buffers = request.buffers;
    Add(comm_.counters().nonfinite_calls, 1);
    FillNan(buffers.output, buffers.count, buffers.type);
    state.DiscardNonfinite();
    if (state.nonfinite_calls() == 1) {
      CallDescriptor descriptor = request.descriptor;
      descriptor.sequence = sequence;
      TellNonfinite(comm_.rank(), descriptor);
    }
    return;
  }
  state.set_op(request.descriptor.op);
  // For one rank the result is the input: there is nothing to commit.
  if (comm_.ranks() > 1) state.Commit();
  request.compressor->prepared.reset();  // it went its own way
}

Status Engine::ReservePackets(const Plan& plan) {
  if (plan.packet_space_bytes <= packets_.size()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(packets_, AlignedBuffer::Create(plan.packet_space_bytes, "packet space"));
  return OkStatus();
}

std::shared_ptr<const Plan> Engine::PlanFor(const Request& request) {
  return request.compressor != nullptr ? request.compressor->plan : PlanFor(request.key);
}

std::shared_ptr<const Plan> Engine::PlanFor(const PlanKey& key) {
  for (CachedPlan& cached : plans_) {
    if (cached.plan->key == key) {
      cached.last_use = ++uses_;
      return cached.plan;
    }
  }
  auto plan = std::make_shared<const Plan>(SelectPlan(key, static_cast<uint32_t>(comm_.rank()),
                                                      static_cast<uint32_t>(comm_.ranks()),
                                                      comm_.options().segment_elements));
  executor_.Reserve(*plan);
  if (plans_.size() == kMaxCachedPlans) {
    const auto oldest =
        std::min_element(plans_.begin(), plans_.end(),
                         [](const auto& a, const auto& b) { return a.last_use < b.last_use; });
    plans_.erase(oldest);
  }
  plans_.push_back({plan, ++uses_});
  return plan;
}

}  // namespace onebit
