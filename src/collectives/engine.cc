// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/log.h"
#include "collectives/device_steps.h"
#include "collectives/stream_executor.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxElements = SIZE_MAX / 2 / sizeof(float);  // so that no size overflows

template <typename T>
void Fill(std::byte* output, size_t count, T value) {
  std::fill_n(reinterpret_cast<T*>(output), count, value);
}

void FillNan(std::byte* output, size_t count, kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return Fill<uint32_t>(output, count, 0x7fc0'0000u);
    case kernels::DataType::kF16:
      return Fill<uint16_t>(output, count, 0x7e00u);
    case kernels::DataType::kBf16:
      return Fill<uint16_t>(output, count, 0x7fc0u);
  }
}

// What a call with a non-finite value returns: quiet NaNs, so that a loss scaler notices.
void FillNan(const onebit::Call& call) {
  for (const Step& step : call.plan->steps) {
    if (!WritesOutput(step) || step.elements.count == 0) continue;
    FillNan(call.OutputAt(step.elements.begin), step.elements.count, call.plan->key.type);
  }
}

PlanKey KeyOf(const Compressor::Config& config, bool is_one_exchange) {
  const bool has_alignment = config.collective == Collective::kAllReduce;
  return {
      .collective = config.collective,
      .codec = config.kind,
      .is_one_exchange = is_one_exchange,
      .type = config.type,
      .block = config.block,
      .chunk_alignment = has_alignment ? config.chunk_alignment : uint16_t{0},
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
  const bool has_chunks =
      config.collective != Collective::kAllReduce && config.collective != Collective::kAllToAllv;
  config.chunks = has_chunks ? static_cast<size_t>(comm_.ranks()) : 1;
  if (config.count > kMaxElements / config.chunks) {
    return Error(Code::kInvalidArgument,
                 "count is {} for each of {} ranks: more than memory can "
                 "hold",
                 config.count, config.chunks);
  }
  ONEBIT_TRY(CheckResidualLocation(config.location));
  config.is_stream_ordered = stream_ != nullptr;
  if (config.location.is_device() && stream_ == nullptr)
    ONEBIT_TRY(UseDevice(*config.devices, config.location.device));
  ONEBIT_ASSIGN_OR_RETURN(NewBinding binding, PlanCompressor(config));
  config.server_elements = binding.server_elements;
  ONEBIT_ASSIGN_OR_RETURN(Compressor compressor, Compressor::Create(config));
  PlannedCompressor planned{std::move(compressor), std::move(binding.plan), comm_.id()};
  if (config.collective == Collective::kAllToAllv) {
    planned.sized_plan = std::make_shared<Plan>(*planned.plan);  // the others' sizes are theirs
    planned.plan = planned.sized_plan;
  }
  // On a stream nobody could look at the outcome.
  if (config.collective == Collective::kAllGather && config.kind == CodecKind::kEf &&
      stream_ == nullptr) {
    PlanKey key = planned.plan->key;
    key.has_drift_check = planned.plan->ranks > 1;
    planned.check_plan = PlanFor(key);
    ONEBIT_TRY(ReservePackets(*planned.check_plan));
  }
  return planned;
}

Result<Engine::NewBinding> Engine::PlanCompressor(const Compressor::Config& config) {
  const auto ranks = static_cast<uint32_t>(comm_.ranks());
  const bool is_all_reduce = config.collective == Collective::kAllReduce;
  const bool is_one_exchange =
      is_all_reduce && UsesOneExchange(config.count, ranks, comm_.options());
  auto plan = PlanFor(KeyOf(config, is_one_exchange));
  ONEBIT_TRY(ReservePackets(*plan));
  if (!is_all_reduce) return NewBinding{std::move(plan), 0};
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
  const Request request = {key, descriptor, {values, values, count, type}};
  return stream_ == nullptr ? Run(request) : RunOnStream({&request, 1});
}

Engine::Request Engine::CompressedRequest(const Buffers& buffers, ReduceOp op,
                                          PlannedCompressor* compressor) const {
  CallDescriptor descriptor = DescriptorOf(*compressor);
  descriptor.op = op;
  return {compressor->plan->key, descriptor, buffers, compressor, {}};
}

Engine::Request Engine::AllReduceRequest(const Buffers& buffers, ReduceOp op,
                                         PlannedCompressor* compressor) const {
  if (compressor != nullptr) return CompressedRequest(buffers, op, compressor);
  PlanKey key = DenseKey(buffers.count, buffers.type);
  key.is_native = comm_.has_native_dense() && buffers.type == kernels::DataType::kF32;
  CallDescriptor descriptor = DescriptorOf(key);
  descriptor.op = op;
  return {key, descriptor, buffers, nullptr, {}};
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
  if (stream_ != nullptr) return CallOnStream(request);
  ONEBIT_TRY(comm_.Enter());
  const CommUse use(comm_);
  return IsStaged(request) ? RunStaged(request) : Run(request);
}

Status Engine::AllReduce(const Buffers& buffers, ReduceOp op, PlannedCompressor* compressor,
                         std::optional<uint32_t> sync_weight) {
  Request request = AllReduceRequest(buffers, op, compressor);
  if (sync_weight.has_value()) {
    request.descriptor.is_sync = true;
    request.descriptor.mask_digest ^= *sync_weight;
  }
  return Call(request);
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

CallDescriptor Engine::DescriptorOf(const PlannedCompressor& compressor) const {
  const Compressor& state = compressor.compressor;
  const PlanKey& key = compressor.plan->key;
  CallDescriptor descriptor = DescriptorOf(key);
  descriptor.tensor_id = state.config().tensor_id;
  descriptor.rule = state.config().rule;
  descriptor.has_server_residual =
      state.config().has_server_residual && key.collective == Collective::kAllReduce;
  descriptor.mask_digest = state.mask_digest();
  if (HasReplica(key, state)) {
    descriptor.is_replica_bf16 = state.config().residual_type == kernels::DataType::kBf16;
    descriptor.is_replica_transactional = state.config().is_transactional;
    descriptor.replica_age = state.age();
  }
  return descriptor;
}

Status Engine::CheckThread() {
  const Status refusal = comm_.ranks() > 1 ? comm_.endpoint().Progress() : OkStatus();
  return refusal.code() == Code::kInvalidUsage ? refusal : OkStatus();
}

Status Engine::Run(const Request& request) {
  const auto plan = PlanFor(request);
  // Before the call is numbered: without memory nothing was sent, and the call can be made again.
  ONEBIT_TRY(ReservePackets(*plan));
  ONEBIT_TRY(executor_.StartThreads(plan->tensor_elements));
  ONEBIT_TRY(CheckThread());
  const auto begin = Clock::now();
  Status status = RunNumbered(*plan, request);
  CountMessages();
  CommCounters& counters = comm_.counters();
  Add(counters.call_ns,
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count()));
  if (status.ok()) {
    CountCall(request, *plan);
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

void Engine::CountCall(const Request& request, const Plan& plan) {
  CommCounters& counters = comm_.counters();
  Add(request.compressor == nullptr ? counters.dense_calls : counters.compressed_calls, 1);
  Add(counters.logical_bytes, plan.tensor_elements * kernels::BytesOf(request.buffers.type));
}

Status Engine::RunNumbered(const Plan& plan, const Request& request) {
  onebit::Call call = CallOf(request, plan, packets());
  call.descriptor.sequence = comm_.NextSequence();
  const Status status = executor_.Run({.plan = &plan,
                                       .descriptor = call.descriptor,
                                       .calls = {&call, 1},
                                       .packets = packets(),
                                       .digests = {},
                                       .device = device_steps()});
  if (!status.ok()) {
    if (request.compressor != nullptr) request.compressor->compressor.DiscardFailed();
    return status;
  }
  Add(comm_.counters().codec_ns, executor_.codec_ns());
  if (Status drift = executor_.is_finite(0) ? CheckHeld(call) : OkStatus(); !drift.ok()) {
    request.compressor->compressor.DiscardFailed();
    return drift;
  }
  return Settle(request, call, executor_.is_finite(0));
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

Status Engine::Settle(const Request& request, const onebit::Call& call, bool is_finite) {
  if (request.compressor == nullptr) return OkStatus();
  Compressor& state = request.compressor->compressor;
  if (!is_finite) {
    Add(comm_.counters().nonfinite_calls, 1);
    state.DiscardNonfinite();
    if (state.nonfinite_calls() == 1) TellNonfinite(comm_.rank(), call.descriptor);
    if (state.config().location.is_device()) return FillNanOnDevice(call);
    FillNan(call);
    return OkStatus();
  }
  if (HasOp(call.descriptor.collective)) state.set_op(call.descriptor.op);
  // For one rank the result is the input: there is nothing to commit.
  if (comm_.ranks() > 1) state.Commit();
  request.compressor->prepared.reset();  // it went its own way
  return OkStatus();
}

Status Engine::ReservePackets(const Plan& plan) {
  if (stream_ != nullptr) {
    const Plan* const plans[] = {&plan};
    return stream_->Reserve(plans, std::nullopt);
  }
  if (device_ != nullptr) return ReserveForDevice(plan);
  if (plan.packet_space_bytes <= packets_.size()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(packets_,
                          Memory::Create({}, nullptr, plan.packet_space_bytes, "packet space"));
  return OkStatus();
}

std::shared_ptr<const Plan> Engine::PlanFor(const Request& request) {
  if (request.key.collective == Collective::kAllToAllv) return PairPlanFor(request);
  if (request.compressor == nullptr) return PlanFor(request.key);
  return request.key.has_drift_check ? request.compressor->check_plan : request.compressor->plan;
}

std::shared_ptr<const Plan> Engine::PlanFor(const PlanKey& key) {
  if (stream_ != nullptr) return StreamPlanFor(key);
  return CachedPlanFor(key);
}

// Messages have their headers in front, and are in one piece: the wire is as busy, and kernels few.
std::shared_ptr<const Plan> Engine::StreamPlanFor(PlanKey key) {
  if (key.codec != CodecKind::kDense) key.header_room = kHeaderBytes;
  return CachedPlanFor(key);
}

std::shared_ptr<const Plan> Engine::CachedPlanFor(const PlanKey& key) {
  const size_t segment_elements = stream_ == nullptr ? comm_.options().segment_elements : 0;
  for (CachedPlan& cached : plans_) {
    if (cached.plan->key == key) {
      cached.last_use = ++uses_;
      return cached.plan;
    }
  }
  auto plan = std::make_shared<const Plan>(SelectPlan(key, static_cast<uint32_t>(comm_.rank()),
                                                      static_cast<uint32_t>(comm_.ranks()),
                                                      segment_elements));
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
