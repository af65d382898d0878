// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "exec/run_calls.h"
#include "steps/fill_nan.h"
#include "steps/held_check.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxElements = SIZE_MAX / 2 / sizeof(float);  // so that no size overflows

// A call that met a NaN or infinity returns quiet NaNs, so that a loss scaler notices.
void FillOutput(const Call& call) {
  if (call.output == nullptr) return;
  for (const Step& step : call.plan->steps) {
    if (!WritesOutput(step) || step.elements.count == 0) continue;
    FillNan(call.OutputAt(step.elements.begin), step.elements.count, call.plan->key.type);
  }
}

// A send or receive is planned as a send to the next rank, until a call names its peer.
PlanKey KeyOf(const Compressor::Config& config, bool is_one_exchange, uint32_t next_rank) {
  const bool has_alignment = config.collective == Collective::kAllReduce;
  return {
      .collective = config.collective,
      .codec = config.codec,
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

// Later calls of this kind only count in the stats. The call is over, so a failure to log is not
// its error.
void LogFirstNonfinite(int rank, const CallDescriptor& call) noexcept {
  if (!LogEnabled(LogLevel::kInfo)) return;
  try {
    Log(LogLevel::kInfo, "rank {}: {}: a value is not finite, so the output is NaN on all ranks",
        rank, Describe(call));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

// Reserves for a single call, so that the first call of a compressor allocates nothing.
Engine::Engine(Comm& comm)
    : comm_(comm),
      plans_(comm),
      executor_(comm),
      are_finite_(1),
      batches_(1),
      sequences_(1),
      calls_(1),
      digests_(1) {
  batches_.clear();
}

Engine::~Engine() = default;

std::optional<int> Engine::device() const {
  if (stream_ != nullptr) return stream_->device();
  if (proxy_ != nullptr) return proxy_->device();
  return std::nullopt;
}

Status Engine::Trace(const std::string& pattern) {
  ONEBIT_ASSIGN_OR_RETURN(trace_, CommTrace::Open(pattern, comm_));
  trace_pattern_ = pattern;
  executor_.set_trace(trace_.get());
  return OkStatus();
}

Status Engine::OrderByStreams(const Devices& devices, int device) {
  ONEBIT_ASSIGN_OR_RETURN(stream_,
                          StreamEngine::Create(comm_, plans_, devices, device, trace_.get()));
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
  ONEBIT_ASSIGN_OR_RETURN(
      proxy_, HostProxy::Create(comm_, plans_, executor_, devices, device, enqueuing_trace_.get()));
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
  const bool has_chunks = config.collective != Collective::kAllReduce &&
                          config.collective != Collective::kAllToAllv &&
                          config.collective != Collective::kSendRecv;
  config.chunks = has_chunks ? static_cast<size_t>(comm_.ranks()) : 1;
  if (config.count > kMaxElements / config.chunks) {
    return Error(Code::kInvalidArgument,
                 "count is {} for each of {} ranks: more than memory can "
                 "hold",
                 config.count, config.chunks);
  }
  if (stream_ != nullptr) ONEBIT_TRY(stream_->CheckResidualLocation(config.location));
  config.is_stream_ordered = config.location.is_device();
  if (config.location.is_device() && stream_ == nullptr)
    ONEBIT_TRY(UseDevice(*config.devices, config.location.device));
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
                 "which has one level: leave levels at 0, or set ONEBIT_ONE_EXCHANGE_ELEMENTS",
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

Status Engine::Reserve(const Plan& plan, size_t calls) {
  if (stream_ != nullptr) return stream_->Reserve(plan);
  // Otherwise the first call reserves, behind the calls that use the executor: a new compressor
  // must not wait for them, because a rank that is a thread of this process may have yet to make
  // them.
  if (proxy_ == nullptr || proxy_->IsThreadIdle()) executor_.Reserve(plan, calls);
  if (plan.packet_space_bytes <= packets_.size()) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(packets_,
                          Memory::Create({}, nullptr, plan.packet_space_bytes, "packet space"));
  return OkStatus();
}

// During a rebind the residuals of a compressor for a device are on the host.
Status Engine::ReserveFor(const Compressor::Config& config, const Plan& plan) {
  return config.is_stream_ordered && proxy_ != nullptr ? proxy_->Reserve(plan) : Reserve(plan);
}

Status Engine::CheckThread() {
  const Status refusal = comm_.ranks() > 1 ? comm_.endpoint().Progress() : OkStatus();
  return refusal.code() == Code::kInvalidUsage ? refusal : OkStatus();
}

// Runs before sequence numbers are assigned: if it fails nothing was sent, and the calls can be
// made again.
Status Engine::Prepare(std::span<const CallRequest> requests) {
  requests_ = requests;
  next_batch_ = 0;
  is_batch_running_ = false;
  plans_.PlanBatches(requests_, &batches_);
  size_t most_calls = 0;
  size_t most_elements = 0;
  for (const PlannedBatch& batch : batches_) {
    const size_t calls = batch.cut.count;
    plans_.TakeCounts(requests_[batch.cut.begin]);
    ONEBIT_TRY(Reserve(batch.whole(), calls));
    most_calls = std::max(most_calls, calls);
    for (size_t i = 0; i < calls; ++i) {
      most_elements = std::max(most_elements, batch.PlanOf(i).tensor_elements);
    }
  }
  calls_.resize(std::max(calls_.size(), most_calls));
  are_finite_.assign(requests.size(), 1);
  sequences_.assign(batches_.size(), 0);
  ONEBIT_TRY(executor_.StartThreads(most_elements));
  ONEBIT_TRY(CheckThread());
  begin_ = Clock::now();
  return OkStatus();
}

// The messages of a single call follow its own plan and name the call; those of several follow the
// group's plan.
void Engine::StartBatch() {
  const PlannedBatch& batch = batches_[next_batch_];
  const auto requests = requests_.subspan(batch.cut.begin, batch.cut.count);
  const bool is_pairs = batch.whole().key.is_pairs();
  const uint64_t sequence = is_pairs ? 0 : comm_.NextSequence();
  sequences_[next_batch_++] = sequence;
  if (batches_.size() > 1) plans_.TakeCounts(requests[0]);  // other batches have set theirs since
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t offset = batch.plan != nullptr ? 0 : batch.group->packets[i];
    calls_[i] = CallOf(requests[i], batch.PlanOf(i), comm_, packets_.data() + offset);
  }
  const auto calls = std::span(calls_).first(requests.size());
  if (is_pairs) NumberPairs(calls, &comm_);
  Batch run = BatchOf(batch.whole(), calls, sequence, &digests_, comm_);
  run.packets = packets_.data();
  executor_.Start(run);
  is_batch_running_ = true;
}

Status Engine::MakeProgress(bool* has_moved) {
  if (!is_batch_running_) StartBatch();
  ONEBIT_TRY(executor_.MakeProgress(has_moved));
  if (!executor_.is_done()) return OkStatus();
  *has_moved = true;
  is_batch_running_ = false;
  const GroupCut& cut = batches_[next_batch_ - 1].cut;
  for (size_t i = 0; i < cut.count; ++i) {
    are_finite_[cut.begin + i] = executor_.is_finite(i);
    if (executor_.is_finite(i)) ONEBIT_TRY(CheckHeld(&comm_, calls_[i], nullptr));
  }
  Add(comm_.counters().codec_ns, executor_.codec_ns());
  return OkStatus();
}

// Until the last batch has ended another rank may still fail. In that case no call of the group
// counts as done on any rank that hears of the failure.
Status Engine::Finish(Status status) {
  const bool has_succeeded = status.ok();
  if (!has_succeeded && is_batch_running_) status = executor_.Fail(status);
  CountMessages(&comm_);
  for (size_t index = 0; index < batches_.size(); ++index) {
    const PlannedBatch& batch = batches_[index];
    if (batches_.size() > 1) plans_.TakeCounts(requests_[batch.cut.begin]);
    for (size_t i = 0; i < batch.cut.count; ++i) {
      const size_t number = batch.cut.begin + i;
      Call call =
          CallOf(requests_[number], batch.PlanOf(i), comm_, nullptr);  // needs no packets any more
      call.descriptor.sequence = sequences_[index];
      const CallOutcome outcome =
          has_succeeded ? are_finite_[number] != 0 ? CallOutcome::kFinite : CallOutcome::kNonfinite
          : index < next_batch_ ? CallOutcome::kFailed
                                : CallOutcome::kNotBegun;
      EndCall(requests_[number], call, outcome);
    }
  }
  Add(comm_.counters().call_ns,
      static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin_).count()));
  batches_.clear();
  next_batch_ = 0;
  is_batch_running_ = false;
  requests_ = {};
  return status;
}

// Records the end of a prepared call in its compressor, its output and the counters.
void Engine::EndCall(const CallRequest& request, const Call& call, CallOutcome outcome) {
  PlannedCompressor* const compressor = request.compressor;
  if (outcome == CallOutcome::kNotBegun || outcome == CallOutcome::kFailed) {
    Add(comm_.counters().failed_calls, 1);
    // A call that has not begun has written nothing.
    const bool has_begun = outcome == CallOutcome::kFailed;
    if (has_begun && compressor != nullptr) compressor->compressor.DiscardFailed();
    if (!has_begun && compressor != nullptr) compressor->compressor.NoteNotBegun();
    return;
  }
  CountCall(request, *call.plan, &comm_);
  if (compressor == nullptr) return;
  Compressor& state = compressor->compressor;
  state.CountCall();
  if (outcome == CallOutcome::kNonfinite) {
    Add(comm_.counters().nonfinite_calls, 1);
    state.DiscardNonfinite();
    if (state.nonfinite_calls() == 1) LogFirstNonfinite(comm_.rank(), call.descriptor);
    FillOutput(call);
    return;
  }
  RecordUse(request);
  // For one rank the result is the input, so there is nothing to commit.
  if (state.is_empty_round()) {
    state.CountEmptyRound();
  } else if (!call.plan->is_alone()) {
    state.Commit();
  }
  compressor->prepared.reset();  // its prepared rebind had not succeeded everywhere
}

}  // namespace onebit
