// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/engine.h"

#include <utility>

#include "exec/run_calls.h"

namespace onebit {
namespace {

constexpr size_t kMaxElements = SIZE_MAX / 2 / sizeof(float);  // so that no size overflows

// A send or receive is planned as a send to the next rank, until a call names its peer.
PlanKey KeyOf(const Compressor::Config& config, bool is_one_exchange, uint32_t next_rank) {
  const bool has_alignment = config.collective == Collective::kAllReduce;
  return {
      .collective = config.collective,
      // Calls of this codec are dense ones, of which that of the whole tensor is the longest.
      .codec = config.codec.is_lossless() ? Codec{} : config.codec,
      .is_one_exchange = is_one_exchange,
      .type = config.type,
      .chunk_alignment = has_alignment ? config.chunk_alignment : uint16_t{0},
      .root = config.collective == Collective::kSendRecv ? next_rank : 0,
      .count = config.count,
      .is_weighted = config.is_weighted,
      .cuts = config.cuts,
  };
}

// Sets what a compressor's configuration owes to its plan.
void SetRanges(const Plan& plan, Compressor::Config* config) {
  config->server_elements = plan.served.count;
  config->has_two_levels = plan.hosts != 0;
  if (!config->has_two_levels) return;
  if (config->collective == Collective::kAllReduce) {
    config->worker_begin = plan.compressed.begin;
    config->worker_count = plan.compressed.count;
    return;
  }
  std::vector<uint32_t> places(config->chunks, Compressor::Config::kElsewhere);
  uint32_t next = 0;
  for (const uint32_t chunk : plan.compressed_chunks) places[chunk] = next++;
  config->worker_places = std::make_shared<const std::vector<uint32_t>>(std::move(places));
  config->worker_count = next * config->count;
}

}  // namespace

Engine::Engine(Comm& comm)
    : comm_(comm), plans_(comm), ledger_(comm), host_(comm, plans_, ledger_) {}

Engine::~Engine() = default;

CallRunner& Engine::RunnerFor(const MemoryLocation& location) {
  if (stream_ != nullptr) return *stream_;
  if (location.is_device()) return *proxy_;
  return host_;
}

std::optional<int> Engine::device() const {
  if (stream_ != nullptr) return stream_->device();
  if (proxy_ != nullptr) return proxy_->device();
  return std::nullopt;
}

Status Engine::Trace(const std::string& pattern) {
  ONEBIT_ASSIGN_OR_RETURN(trace_, CommTrace::Open(pattern, comm_));
  trace_pattern_ = pattern;
  host_.executor().set_trace(trace_.get());
  return OkStatus();
}

Status Engine::OrderByStreams(const Devices& devices, int device) {
  ledger_.set_trace(trace_.get());
  ONEBIT_ASSIGN_OR_RETURN(stream_, StreamEngine::Create(comm_, plans_, ledger_, devices, device));
  return OkStatus();
}

Status Engine::UseDevice(const Devices& devices, int device) {
  if (proxy_ != nullptr) {
    const int first = proxy_->device();
    if (first == device) return OkStatus();
    return Error(Code::kInvalidUsage,
                 "rank {}: buffers are memory of CUDA device {}, but this communicator works on "
                 "device {}: one communicator has one device",
                 comm_.rank(), device, first);
  }
  // Another thread runs the executor, and its trace, while this one enqueues.
  if (trace_ != nullptr) {
    ONEBIT_ASSIGN_OR_RETURN(enqueuing_trace_, CommTrace::Open(trace_pattern_, comm_));
  }
  ledger_.set_trace(enqueuing_trace_.get());
  ONEBIT_ASSIGN_OR_RETURN(
      proxy_, HostProxy::Create(comm_, plans_, ledger_, host_.executor(), devices, device));
  return OkStatus();
}

Status Engine::AwaitStreams() {
  if (stream_ != nullptr) return stream_->AwaitStream();
  if (proxy_ == nullptr) return OkStatus();
  Status status = proxy_->AwaitStreams();
  // A stream does not hold the turns that a failing call could not enqueue, so it may be done while
  // the thread is not.
  if (comm_.is_stopped()) proxy_->AwaitThread();
  return status;
}

Result<bool> Engine::AreStreamsIdle() const {
  if (stream_ != nullptr) return stream_->IsIdle();
  return proxy_ != nullptr ? proxy_->IsIdle() : Result<bool>(true);
}

uint64_t Engine::nonfinite_stream_calls() const {
  if (stream_ != nullptr) return stream_->nonfinite_calls();
  return proxy_ != nullptr ? proxy_->nonfinite_calls() : 0;
}

Result<PlannedCompressor> Engine::CreateCompressor(Compressor::Config config) {
  const bool has_chunks =
      config.collective != Collective::kAllReduce && config.collective != Collective::kAllToAllv &&
      config.collective != Collective::kBroadcast && config.collective != Collective::kSendRecv;
  config.chunks = has_chunks ? static_cast<size_t>(comm_.ranks()) : 1;
  if (config.count > kMaxElements / config.chunks) {
    return Error(Code::kInvalidArgument,
                 "count is {} for each of {} ranks: more than memory can "
                 "hold",
                 config.count, config.chunks);
  }
  ONEBIT_TRY(TakeLocation(config));
  config.is_stream_ordered = config.location.is_device() && !config.codec.is_lossless();
  ONEBIT_TRY(CheckLevels(config));
  ONEBIT_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, PlanCompressor(config));
  SetRanges(*plan, &config);
  ONEBIT_ASSIGN_OR_RETURN(Compressor compressor, Compressor::Create(config));
  PlannedCompressor planned{std::move(compressor), std::move(plan), comm_.id()};
  if (config.collective == Collective::kAllToAllv) {
    planned.sized_plan = std::make_shared<Plan>(*planned.plan);  // other tensors have other sizes
    planned.plan = planned.sized_plan;
  }
  // The check is planned only where its outcome can be returned: a stream-ordered call has returned
  // before it runs.
  if (planned.plan->key.is_delta() && stream_ == nullptr) {
    PlanKey key = planned.plan->key;
    key.has_drift_check = planned.plan->ranks > 1;
    planned.check_plan = plans_.PlanFor(key);
    ONEBIT_TRY(ReserveFor(config, *planned.check_plan));
  }
  return planned;
}

Status Engine::TakeLocation(const Compressor::Config& config) {
  // Calls of this codec exchange host memory, wherever their buffers are.
  if (config.codec.is_lossless() && !config.location.is_device()) return OkStatus();
  if (stream_ != nullptr) return stream_->CheckResidualLocation(config.location);
  if (!config.location.is_device()) return OkStatus();
  return UseDevice(*config.devices, config.location.device);
}

Result<std::shared_ptr<const Plan>> Engine::PlanCompressor(const Compressor::Config& config) {
  const bool is_one_exchange = TakesOneExchange(config);
  const auto ranks = static_cast<uint32_t>(comm_.ranks());
  const uint32_t next_rank = (static_cast<uint32_t>(comm_.rank()) + 1) % ranks;
  PlanKey key = KeyOf(config, is_one_exchange, next_rank);
  key.has_two_levels = !is_one_exchange && TakesTwoLevels(config);
  key.is_staged = key.has_two_levels && config.is_stream_ordered && !comm_.is_stream_ordered() &&
                  SumsInsideHosts(key.collective);
  auto plan = plans_.PlanFor(key);
  ONEBIT_TRY(ReserveFor(config, *plan));
  return plan;
}

bool Engine::TakesOneExchange(const Compressor::Config& config) const {
  if (config.collective != Collective::kAllReduce) return false;
  if (config.codec.is_sparse()) return config.hops == 1;
  return UsesOneExchange(config.count, static_cast<uint32_t>(comm_.ranks()), comm_.options());
}

// Says nothing of one exchange, which has one level.
bool Engine::TakesTwoLevels(const Compressor::Config& config) const {
  if (!CanHaveLevels(config.collective) || config.levels == 1) return false;
  if (config.levels == 2) return comm_.hosts().has_levels();
  // Without a block a rank knows the scale of its own part only.
  return config.codec.block != 0 && UsesTwoLevels(config.elements() * kernels::BytesOf(config.type),
                                                  comm_.hosts(), comm_.options());
}

Status Engine::CheckLevels(const Compressor::Config& config) const {
  if (config.levels != 2 || config.count == 0 || !comm_.hosts().has_levels()) return OkStatus();
  // A rebind goes on with one level instead.
  if (TakesOneExchange(config)) {
    return Error(Code::kInvalidArgument,
                 "compressor config: levels is 2, but a tensor of {} elements takes one exchange, "
                 "which has one level: leave levels at 0, or lower ONEBIT_ONE_EXCHANGE_ELEMENTS",
                 config.count);
  }
  return OkStatus();
}

Status Engine::PlanWeights(PlannedCompressor* planned) {
  Compressor::Config config = planned->compressor.config();
  config.is_weighted = true;
  ONEBIT_ASSIGN_OR_RETURN(planned->plan, PlanCompressor(config));
  return OkStatus();
}

Result<Engine::OneLevel> Engine::PrepareOneLevel(const PlannedCompressor& planned) {
  Compressor::Config config = planned.compressor.config();
  config.levels = 1;
  OneLevel one;
  ONEBIT_ASSIGN_OR_RETURN(one.plan, PlanCompressor(config));
  ONEBIT_ASSIGN_OR_RETURN(one.layout, planned.compressor.NewOneLevel(one.plan->served.count));
  return one;
}

void Engine::OneLevel::Swap(PlannedCompressor* planned) {
  planned->compressor.Swap(&layout);
  std::swap(planned->plan, plan);
}

Status Engine::ReserveDense(const CallRequest& request) {
  return Reserve(*plans_.PlanFor(request));
}

Status Engine::ReserveSum(size_t count, kernels::DataType type) {
  return ReserveDense({.collective = Collective::kAllReduce,
                       .count = count,
                       .type = type,
                       .can_be_native = false,
                       .can_have_levels = false});
}

Status Engine::Sum(void* values, size_t count, kernels::DataType type) {
  const CallRequest request = {.collective = Collective::kAllReduce,
                               .sendbuff = values,
                               .recvbuff = values,
                               .count = count,
                               .type = type,
                               .can_be_native = false,
                               .can_have_levels = false};
  GroupMember member{.engine = this, .requests = {&request, 1}};
  return RunCalls({&member, 1}, /*are_entered=*/true);
}

Status Engine::Reserve(const Plan& plan) {
  if (stream_ != nullptr) return stream_->Reserve(plan);
  // Otherwise the first call reserves, behind the calls that use the executor: a new compressor
  // must not wait for them, because a rank that is a thread of this process may have yet to make
  // them.
  if (proxy_ == nullptr || proxy_->IsThreadIdle()) host_.executor().Reserve(plan);
  return host_.ReservePackets(plan);
}

// During a rebind the residuals of a compressor for a device are on the host.
Status Engine::ReserveFor(const Compressor::Config& config, const Plan& plan) {
  return config.is_stream_ordered && proxy_ != nullptr ? proxy_->Reserve(plan) : Reserve(plan);
}

}  // namespace onebit
