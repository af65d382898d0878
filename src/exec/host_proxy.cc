// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/host_proxy.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "exec/engine.h"
#include "steps/held_check.h"
#include "wait/backoff.h"

namespace onebit {
namespace {

// Limits the wait for events, because a silent peer sends none.
constexpr uint64_t kWaitMs = 100;

// Limits waits for a stream that nothing holds up, because a device may hang.
constexpr uint64_t kEndMs = 5000;

}  // namespace

Result<std::unique_ptr<HostProxy>> HostProxy::Create(Comm& comm, PlanCache& plans,
                                                     CallLedger& ledger, HostExecutor& executor,
                                                     const Devices& devices, int device) {
  ONEBIT_ASSIGN_OR_RETURN(auto compute, StreamCompute::Create(devices, device, comm.hosts()));
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  std::unique_ptr<HostProxy> proxy(
      new HostProxy(comm, plans, ledger, executor, std::move(compute)));
  ONEBIT_ASSIGN_OR_RETURN(proxy->turn_words_,
                          Memory::CreatePinned(devices, device, sizeof(TurnWords), "turns"));
  // Fails now, before anything depends on it, if the device cannot wait for the host.
  ONEBIT_ASSIGN_OR_RETURN(const DeviceStream trial, DeviceStream::Create(devices));
  ONEBIT_TRY(devices.WaitValue(trial.get(), &proxy->turn_words()->released, 0));
  ONEBIT_TRY(devices.WriteValue(trial.get(), &proxy->turn_words()->reached, 0));
  ONEBIT_TRY(devices.Synchronize(trial.get(), comm.options().timeout_ms));
  ONEBIT_TRY(proxy->ReserveWords(/*calls=*/64));
  ONEBIT_TRY(proxy->compute_->WatchDevice(comm));
  ONEBIT_ASSIGN_OR_RETURN(proxy->thread_, HostStream::Create());
  ONEBIT_TRY(proxy->thread_->Enqueue(HostStream::AfterFailure::kRun, []() -> Status {
    pthread_setname_np(pthread_self(), kThreadName);
    return OkStatus();
  }));
  return proxy;
}

// Must not free memory that unfinished calls use, because freeing would wait for them.
HostProxy::~HostProxy() {
  constexpr std::chrono::milliseconds kEndTimeout{5000};
  if (thread_ == nullptr) return;
  if (!comm_.is_stopped() && !compute_->IsIdleWithin(kEndTimeout)) {
    static_cast<void>(comm_.Fail(CatchNoMemory([&]() -> Status {
      return Error(Code::kAborted,
                   "rank {}: the communicator was destroyed while calls on a "
                   "stream were pending",
                   comm_.rank());
    })));
  }
  thread_.reset();
  compute_->EndWatch();
  if (compute_->IsIdleWithin(kEndTimeout)) return;
  Log(LogLevel::kWarn,
      "rank {}: calls on a stream do not finish, so their working memory is not freed",
      comm_.rank());
  compute_->LeakMemory();
  slots_.LeakMemory();
  static_cast<void>(turn_words_.Release());
  static_cast<void>(held_.Release());
  words_.Release();
  packets_.Release();
}

Status HostProxy::ReservePackets(size_t bytes) {
  return packets_.Reserve(bytes, [this](size_t grown) {
    return Memory::CreatePinned(devices(), device(), grown, "packet space");
  });
}

size_t HostProxy::WordStride() const {
  return sizeof(OutcomeWords) +
         RoundUp(static_cast<size_t>(comm_.ranks()) * sizeof(kernels::Checksum), kCacheLine);
}

Status HostProxy::ReserveWords(size_t calls) {
  return words_.Reserve(calls * WordStride(), [this](size_t grown) {
    return Memory::CreatePinned(devices(), device(), grown, "the state of calls");
  });
}

Status HostProxy::ReserveForDense() {
  if (comm_.ranks() == 1) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices(), device()));
  return slots_.Reserve(DenseSlots::kSlotBytes);
}

Status HostProxy::Reserve(const Plan& plan) {
  ONEBIT_TRY(CheckDevicePlan(plan));
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices(), device()));
  ONEBIT_TRY(ReservePackets(plan.packet_space_bytes));
  return compute_->ReserveSums(compute_->SumBytesFor(plan, plan.tensor_elements));
}

Status HostProxy::CheckRequests(std::span<const CallRequest> requests) const {
  for (const CallRequest& request : requests) {
    if (request.location == MemoryLocation{MemoryKind::kDevice, device()}) continue;
    return Error(Code::kInvalidUsage,
                 "rank {}: the buffers are {}, but this communicator works on device {}: one "
                 "communicator has one device",
                 comm_.rank(), Describe(request.location), device());
  }
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing, devices().IsCapturing(requests[0].stream));
  if (!is_capturing) return OkStatus();
  return Error(Code::kInvalidUsage,
               "stream is being captured, but transport {} moves host memory, which a graph "
               "cannot replay: use transport nccl",
               comm_.transport_name());
}

Status HostProxy::Run(std::span<GroupMember> members) {
  proxies_.clear();
  for (const GroupMember& member : members) {
    proxies_.push_back(member.engine->proxy());
    ONEBIT_TRY(proxies_.back()->Prepare(member.requests));
  }
  return EnqueueAll(proxies_);
}

Status HostProxy::Prepare(std::span<const CallRequest> requests) {
  next_job_ = nullptr;
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices(), device()));
  ONEBIT_TRY(CheckRequests(requests));
  Job& job = *FreeJob();
  CopyRequests(requests, &job);
  plans_.PlanBatches(job.requests, &job.batches, DenseSlots::kSlotBytes);
  AddParts(&job);
  ONEBIT_TRY(ReserveFor(&job));
  BindCalls(&job);
  AddOps(&job);
  next_job_ = &job;
  return OkStatus();
}

HostProxy::Job* HostProxy::FreeJob() {
  if (begun_ - reclaimed_ == kMostJobs) {
    const uint64_t full = begun_ - kMostJobs;
    while (ended_.load(std::memory_order_acquire) == full) {
      ended_.wait(full, std::memory_order_acquire);
    }
  }
  if (free_jobs_.capacity() < kMostJobs) free_jobs_.reserve(kMostJobs);
  for (; reclaimed_ != ended_.load(std::memory_order_acquire); ++reclaimed_) {
    free_jobs_.push_back(jobs_in_flight_[reclaimed_ % kMostJobs]);
  }
  if (free_jobs_.empty()) {
    jobs_.push_back(std::make_unique<Job>());
    free_jobs_.push_back(jobs_.back().get());
  }
  return free_jobs_.back();  // it leaves the list when it is enqueued
}

// Callers may free the lists of an all-to-all-v when its function returns.
void HostProxy::CopyRequests(std::span<const CallRequest> requests, Job* job) const {
  job->requests.assign(requests.begin(), requests.end());
  for (CallRequest& request : job->requests) {
    request.pairs.Own(static_cast<size_t>(comm_.ranks()));
  }
}

HostProxy::Part& HostProxy::NewPart(Job* job, size_t first, size_t count) const {
  if (job->part_count == job->parts.size()) job->parts.emplace_back();
  Part& part = job->parts[job->part_count++];
  part.plan = nullptr;
  part.group = nullptr;
  part.is_sized = false;
  part.first = first;
  part.count = count;
  part.is_piece = false;
  part.piece_index = 0;
  part.is_computed_on_stream = comm_.ranks() == 1;
  for (size_t i = first; i < first + count; ++i) {
    part.is_computed_on_stream |= job->requests[i].compressor != nullptr;
  }
  return part;
}

void HostProxy::AddParts(Job* job) {
  job->part_count = 0;
  for (const PlannedBatch& batch : job->batches) {
    const CallRequest& first = job->requests[batch.cut.begin];
    const bool is_dense = batch.plan != nullptr && first.compressor == nullptr;
    const size_t piece_count = is_dense && comm_.ranks() > 1 ? slots_.PieceCount(first) : 0;
    if (piece_count != 0) {
      const size_t count = std::max<size_t>(slots_.PiecedCount(first), 1);
      for (size_t begin = 0; begin < count; begin += piece_count) {
        Part& part = NewPart(job, batch.cut.begin, 1);
        part.is_piece = true;
        part.piece_index = begin / piece_count;
        part.piece = {begin, std::min(piece_count, count - begin)};
        SetPlanOfPiece(first, batch.plan, &part);
      }
      continue;
    }
    Part& part = NewPart(job, batch.cut.begin, batch.cut.count);
    part.plan = batch.plan;
    part.group = batch.group;
    if (first.collective != Collective::kAllToAllv || batch.plan == nullptr) continue;
    part.is_sized = true;
    part.sized = *batch.plan;
    if (first.compressor == nullptr) part.sized.key.type = first.type;
    ResizeAllToAllv(*first.pairs, &part.sized);
  }
}

void HostProxy::SetPlanOfPiece(const CallRequest& request, std::shared_ptr<const Plan> whole,
                               Part* part) {
  if (request.collective == Collective::kAllToAllv) {
    part->is_sized = true;
    part->sized = *whole;
    part->sized.key.type = request.type;
    ResizeToPiece(*request.pairs, part->piece.begin, part->piece.count, &part->sized);
    part->plan = std::move(whole);
    return;
  }
  CallRequest piece = request;
  piece.whole_count = request.count;
  piece.count = part->piece.count;
  part->plan = plans_.PlanFor(piece);
}

// Memory that grows is not freed, because calls in flight may use it. That of checksums has one
// size.
Status HostProxy::ReserveFor(Job* job) {
  size_t packets = 0;
  size_t sums = 0;
  size_t held = 0;
  size_t slots = 0;
  size_t compressed = 0;
  for (Part& part : std::span(job->parts).first(job->part_count)) {
    const Plan& whole = part.whole();
    size_t staged = 0;
    size_t part_sums = 0;
    for (size_t i = 0; i < part.count; ++i) {
      const CallRequest& request = job->requests[part.first + i];
      const Plan& plan = part.PlanOf(i);
      if (request.compressor != nullptr) {
        ONEBIT_TRY(CheckDevicePlan(plan));
        part_sums += compute_->SumBytesFor(plan, plan.tensor_elements);
        ++compressed;
        if (plan.key.has_drift_check) held = plan.ranks * sizeof(kernels::Checksum);
      } else if (comm_.ranks() > 1) {
        staged += slots_.BytesFor(request, part.is_piece ? part.piece.count : request.count);
      }
    }
    slots = std::max(slots, staged);
    sums = std::max(sums, part_sums);
    if (part.is_computed_on_stream) packets = std::max(packets, whole.packet_space_bytes);
  }
  ONEBIT_TRY(ReservePackets(packets));
  ONEBIT_TRY(compute_->ReserveSums(sums));
  ONEBIT_TRY(compute_->lists().Reserve(StreamCompute::ListBytesFor(compressed, 0)));
  if (slots != 0) ONEBIT_TRY(slots_.Reserve(slots));
  if (held > held_.size()) {
    ONEBIT_ASSIGN_OR_RETURN(
        held_, Memory::Create({MemoryKind::kDevice, device()}, &devices(), held, "checksums"));
  }
  ONEBIT_TRY(ReserveWords(job->requests.size()));
  job->word_stride = WordStride();
  job->words = words_.data();
  return OkStatus();
}

void HostProxy::BindCalls(Job* job) {
  job->staged.assign(job->requests.begin(), job->requests.end());
  for (Part& part : std::span(job->parts).first(job->part_count)) {
    part.packets = part.is_computed_on_stream ? packets_.data() : nullptr;
    part.calls.clear();
    std::byte* staging = part.is_piece ? slots_.slot(part.piece_index) : slots_.data();
    part.staging = staging;
    for (size_t i = 0; i < part.count; ++i) {
      const CallRequest& request = job->requests[part.first + i];
      const size_t offset = part.group == nullptr ? 0 : part.group->packets[i];
      CallRequest staged = request;
      if (request.compressor == nullptr && comm_.ranks() > 1) {
        const DensePiece piece = part.is_piece ? part.piece : DensePiece{0, request.count};
        staged = slots_.Staged(request, piece, staging);
        staging += slots_.BytesFor(request, piece.count);
        if (!part.is_piece) job->staged[part.first + i] = staged;
      }
      part.calls.push_back(CallOf(staged, part.PlanOf(i), comm_,
                                  part.packets == nullptr ? nullptr : part.packets + offset));
    }
    if (part.is_computed_on_stream) ArrangeSteps(*job, &part);
  }
}

// With one rank the stream does all there is to do, dense calls included.
void HostProxy::ArrangeSteps(const Job& job, Part* part) const {
  part->order.Arrange(part->whole());
  part->stream_steps.clear();
  part->phase_ends.clear();
  for (uint32_t phase = 0; phase <= part->exchanges(); ++phase) {
    for (const uint32_t index : part->order.compute(phase)) {
      const Step& step = part->whole().steps[index];
      if (step.kind == StepKind::kPack || step.kind == StepKind::kUnpack) continue;
      if (part->calls[step.call].is_on_device() || comm_.ranks() == 1) {
        part->stream_steps.push_back(index);
      }
    }
    part->phase_ends.push_back(part->stream_steps.size());
  }
  part->words.clear();
  for (size_t i = 0; i < part->count; ++i) {
    part->words.push_back(WordsOf(job, part->first + i));
  }
}

// The stream copies a piece while the host moves the one before.
void HostProxy::AddOps(Job* job) const {
  job->ops.clear();
  job->next_op = 0;
  const auto parts = std::span(job->parts).first(job->part_count);
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.is_piece) {
      if (part.piece_index == 0) job->ops.push_back({.part = i, .is_first = true});
      const bool has_next = i + 1 < parts.size() && parts[i + 1].piece_index != 0;
      if (has_next) job->ops.push_back({.part = i + 1, .is_first = true});
      job->ops.push_back({.part = i, .phase = 1, .is_last = true});
      continue;
    }
    const uint32_t last = comm_.ranks() == 1 ? 0 : part.exchanges();
    for (uint32_t phase = 0; phase <= last; ++phase) {
      job->ops.push_back(
          {.part = i, .phase = phase, .is_first = phase == 0, .is_last = phase == last});
    }
  }
}

CallRequest HostProxy::StagedOf(const Job& job, const Part& part, size_t call) const {
  const size_t number = part.first + call;
  return part.is_piece ? slots_.Staged(job.requests[number], part.piece, part.staging)
                       : job.staged[number];
}

FaultWords HostProxy::WordsOf(const Job& job, size_t call) const {
  auto& words = *reinterpret_cast<OutcomeWords*>(job.words + call * job.word_stride);
  return {.faults = &words.faults, .decision = &words.decision};
}

StreamTurns HostProxy::TurnsOf(const Job& job, const Part& part) const {
  return {.order = &part.order,
          .words = turn_words(),
          .first_reached = part.first_reached,
          .first_released = part.first_released,
          .calls = job.words + part.first * job.word_stride,
          .call_stride = job.word_stride};
}

// Numbers the calls for their peers, and the turns. Ranks have different numbers of pieces in an
// all-to-all-v, so these share the number of the call.
void HostProxy::Number(Job* job) {
  uint64_t sequence = 0;
  for (Part& part : std::span(job->parts).first(job->part_count)) {
    const bool shares = part.is_sized && part.piece_index != 0;
    if (!shares) sequence = ledger_.Number(part.whole(), part.calls);
    part.sequence = sequence;
  }
  for (const CallRequest& request : job->requests) {
    if (request.compressor != nullptr) request.compressor->compressor.CountCall();
  }
  for (const Op& op : job->ops) {
    Part& part = job->parts[op.part];
    if (!op.is_last) {
      if (op.phase == 0) part.first_reached = next_reached_;
      ++next_reached_;
    }
    if (!op.is_first) {
      if (op.phase == 1) part.first_released = next_released_;
      ++next_released_;
    }
  }
  job->last_released = next_released_ - 1;
  job->last_reached = next_reached_++;
}

// The threads know the calls before the streams do, because a stream that is full lets nobody
// enqueue before it goes on. Each turn is enqueued for all communicators before the next one,
// because their ranks may wait for each other. They begin a call together, since ranks may have
// different numbers of turns in the call before, an all-to-all-v in pieces.
Status HostProxy::EnqueueAll(std::span<HostProxy* const> proxies) {
  for (HostProxy* proxy : proxies) {
    Job* const job = proxy->next_job_;
    proxy->Number(job);
    CallDescriptor first = job->parts[0].calls[0].descriptor;
    if (!job->parts[0].whole().key.is_pairs()) first.sequence = job->parts[0].sequence;
    proxy->ledger_.BeginEnqueuing(first, job->requests.size());
    proxy->free_jobs_.pop_back();
    proxy->jobs_in_flight_[proxy->begun_++ % kMostJobs] = job;
    ONEBIT_TRY(proxy->thread_->Enqueue(HostStream::AfterFailure::kRun, [proxy, job]() -> Status {
      proxy->Run(job);
      return OkStatus();
    }));
  }
  const Status status = CatchNoMemory([&]() -> Status {
    while (true) {
      size_t call = SIZE_MAX;
      for (HostProxy* proxy : proxies) call = std::min(call, proxy->NextCall());
      if (call == SIZE_MAX) return OkStatus();
      for (HostProxy* proxy : proxies) {
        if (proxy->NextCall() == call) ONEBIT_TRY(proxy->EnqueueTurn());
      }
    }
  });
  Status first_failure;
  for (HostProxy* proxy : proxies) {
    proxy->EndEnqueuing(status);
    if (status.ok()) continue;
    Status failure = proxy->ledger_.FailEnqueuing(status);
    if (first_failure.ok()) first_failure = std::move(failure);
  }
  return first_failure;
}

// Enqueues up to the next point at which the stream waits for the host.
Status HostProxy::EnqueueTurn() {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices(), device()));
  Job& job = *next_job_;
  if (job.next_op == 0) {
    ONEBIT_TRY(compute_->Begin(job.requests[0].stream));
    for (size_t i = 0; i < job.requests.size(); ++i) {
      const PlannedCompressor* const compressor = job.requests[i].compressor;
      if (compressor == nullptr) continue;
      ONEBIT_TRY(compute_->BeginCall(WordsOf(job, i)));
      auto& words = *reinterpret_cast<OutcomeWords*>(job.words + i * job.word_stride);
      const uint64_t* const age = AgeOnDevice(compressor->plan->key, compressor->compressor);
      if (age != nullptr) {
        ONEBIT_TRY(devices().Copy(&words.age, age, sizeof(words.age), compute_->stream()));
      }
    }
  }
  const size_t call = NextCall();
  do {
    ONEBIT_TRY(EnqueueOp(job.ops[job.next_op]));
    ++job.next_op;
  } while (NextCall() == call && job.ops[job.next_op].is_first);
  return has_ops() ? OkStatus() : EnqueueEnd();
}

Status HostProxy::EnqueueOp(const Op& op) {
  const Job& job = *next_job_;
  const Part& part = job.parts[op.part];
  const onebitStream_t stream = compute_->stream();
  if (!op.is_first) {
    ONEBIT_TRY(
        devices().WaitValue(stream, &turn_words()->released, part.first_released + op.phase - 1));
  }
  const auto for_staged = [&](auto copy) -> Status {
    for (size_t i = 0; i < part.count && comm_.ranks() > 1; ++i) {
      const CallRequest& request = job.requests[part.first + i];
      if (request.compressor != nullptr) continue;
      const DensePiece piece = part.is_piece ? part.piece : DensePiece{0, request.count};
      ONEBIT_TRY(copy(request, piece, StagedOf(job, part, i)));
    }
    return OkStatus();
  };
  if (op.phase == 0) {
    ONEBIT_TRY(for_staged([&](const auto& request, DensePiece piece, const auto& staged) {
      return slots_.CopyIn(request, piece, staged, stream);
    }));
  }
  if (part.is_computed_on_stream) ONEBIT_TRY(EnqueuePhase(job, part, op.phase));
  if (op.is_last) {
    return for_staged([&](const auto& request, DensePiece piece, const auto& staged) {
      return slots_.CopyOut(request, piece, staged, stream);
    });
  }
  return devices().WriteValue(stream, &turn_words()->reached, part.first_reached + op.phase);
}

Status HostProxy::EnqueuePhase(const Job& job, const Part& part, uint32_t phase) {
  const std::vector<Step>& steps = part.whole().steps;
  const size_t begin = phase == 0 ? 0 : part.phase_ends[phase - 1];
  const auto indices = std::span(part.stream_steps).subspan(begin, part.phase_ends[phase] - begin);
  const EnqueueSpan span(ledger_.trace(),
                         indices.empty() ? nullptr : NameOf(steps[indices[0]].kind));
  for (const uint32_t index : indices) {
    const size_t call = steps[index].call;
    compute_->steps().Add(call, part.calls[call], steps[index], part.words[call]);
  }
  ONEBIT_TRY(compute_->steps().EnqueueSteps());
  for (const uint32_t index : indices) {
    const Step& step = steps[index];
    const Call& call = part.calls[step.call];
    if (step.kind != StepKind::kVerdict || !call.plan->key.has_drift_check) continue;
    const size_t bytes = call.plan->ranks * sizeof(kernels::Checksum);
    const onebitStream_t stream = compute_->stream();
    ONEBIT_TRY(devices().Fill(held_.data(), 0, bytes, stream));
    ONEBIT_TRY(compute_->steps().EnqueueHeldChecksums(
        call, reinterpret_cast<kernels::Checksum*>(held_.data())));
    ONEBIT_TRY(devices().Copy(TurnsOf(job, part).held(step.call), held_.data(), bytes, stream));
  }
  return OkStatus();
}

Status HostProxy::EnqueueEnd() {
  const EnqueueSpan span(ledger_.trace(), "commit");
  const Job& job = *next_job_;
  for (const Part& part : std::span(job.parts).first(job.part_count)) {
    for (size_t i = 0; i < part.count; ++i) {
      if (part.calls[i].compressor == nullptr) continue;
      compute_->EndCall(part.calls[i], WordsOf(job, part.first + i), /*counts_sequence=*/false);
    }
  }
  ONEBIT_TRY(compute_->steps().EnqueueEnds());
  ONEBIT_TRY(devices().WriteValue(compute_->stream(), &turn_words()->reached, job.last_reached));
  return compute_->End();
}

void HostProxy::EndEnqueuing(const Status& status) {
  Job& job = *std::exchange(next_job_, nullptr);
  ledger_.EndEnqueuing(job.requests, status.ok());
  if (!status.ok()) compute_->Halt(job.requests[0].stream);
}

void HostProxy::AwaitThread() const {
  const uint64_t begun = begun_;
  for (uint64_t ended = ended_.load(std::memory_order_acquire); ended < begun;
       ended = ended_.load(std::memory_order_acquire)) {
    ended_.wait(ended, std::memory_order_acquire);
  }
}

void HostProxy::Run(Job* running) noexcept {
  Job& job = *running;
  Status status = CatchNoMemory([&] { return MoveParts(&job); });
  if (!status.ok()) status = comm_.Fail(std::move(status));
  Decide(job, status);
  // Counters include all calls that a stream has completed.
  CountCalls(job, status);
  Release(job.last_released);
  if (status.ok()) AwaitEnd(job);
  ended_.fetch_add(1, std::memory_order_release);
  ended_.notify_all();
}

// Has no timeout: work that was queued before a call may legitimately be slow.
Status HostProxy::AwaitReached(uint32_t number) const {
  PollUntil(
      kNoDeadline, [&] { return HasReached(turn_words()->reached, number); },
      [&] { return comm_.is_stopped(); });
  return comm_.FindFailure();
}

// The next job uses the same words. Even if the communicator has stopped since, the stream goes on
// to the end, and must not find the failure of the next job there.
void HostProxy::AwaitEnd(const Job& job) const {
  auto deadline = kNoDeadline;
  PollUntil(
      kNoDeadline, [&] { return HasReached(turn_words()->reached, job.last_reached); },
      [&] {
        if (!comm_.is_stopped()) return false;
        if (deadline == kNoDeadline) deadline = DeadlineAfter(kEndMs);
        return std::chrono::steady_clock::now() >= deadline;
      });
}

void HostProxy::Release(uint32_t number) const {
  std::atomic_ref(turn_words()->released).store(number, std::memory_order_release);
}

// Before the stream goes on to what ends the calls. A failure stays: later calls have the words of
// earlier ones.
void HostProxy::Decide(const Job& job, const Status& status) const {
  if (status.ok()) return;
  for (size_t i = 0; i < job.requests.size(); ++i) {
    auto& words = *reinterpret_cast<OutcomeWords*>(job.words + i * job.word_stride);
    std::atomic_ref(words.decision).store(kernels::cuda::kFailed, std::memory_order_release);
  }
}

Status HostProxy::MoveParts(Job* job) {
  if (comm_.is_stopped()) return comm_.FindFailure();
  for (size_t i = 0; i < job->requests.size(); ++i) {
    auto& words = *reinterpret_cast<OutcomeWords*>(job->words + i * job->word_stride);
    std::atomic_ref(words.decision).store(0, std::memory_order_relaxed);
  }
  if (comm_.ranks() == 1) return OkStatus();
  for (Part& part : std::span(job->parts).first(job->part_count)) {
    ONEBIT_TRY(MovePart(job, &part));
    const uint32_t last = part.first_released + part.exchanges() - 1;
    if (last != job->last_released) Release(last);
  }
  return OkStatus();
}

// The calls of a part are over once its stream has been released: then nothing here may use them.
Status HostProxy::MovePart(Job* job, Part* part) {
  ONEBIT_TRY(AwaitReached(part->first_reached));
  // Only the refusal of the thread matters here. The executor meets everything else.
  const Status progress = comm_.endpoint().Progress();
  if (progress.code() == Code::kInvalidUsage) return progress;
  const Plan& plan = part->whole();
  if (!part->is_computed_on_stream) {
    if (plan.packet_space_bytes > host_packets_.size()) {
      ONEBIT_ASSIGN_OR_RETURN(host_packets_,
                              AlignedBuffer::Create(plan.packet_space_bytes, "packet space"));
    }
    part->packets = host_packets_.data();
  }
  size_t most_elements = 0;
  for (size_t i = 0; i < part->count; ++i) {
    Call& call = part->calls[i];
    most_elements = std::max(most_elements, call.plan->tensor_elements);
    if (!part->is_computed_on_stream) {
      call.packets = part->packets + (part->group == nullptr ? 0 : part->group->packets[i]);
    }
    if (call.compressor == nullptr) continue;
    if (AgeOnDevice(call.plan->key, *call.compressor) == nullptr) continue;
    const auto& words =
        *reinterpret_cast<const OutcomeWords*>(job->words + (part->first + i) * job->word_stride);
    call.descriptor.replica_age = Compressor::AgeOf(words.age);
  }
  executor_.Reserve(plan, part->count);
  ONEBIT_TRY(executor_.StartThreads(most_elements));
  const StreamTurns turns = TurnsOf(*job, *part);
  Batch batch = BatchOf(plan, part->calls, part->sequence, &job->digests, comm_);
  batch.packets = part->packets;
  batch.turns = part->is_computed_on_stream ? &turns : nullptr;
  const auto begin = std::chrono::steady_clock::now();
  executor_.Start(batch);
  Status status = CatchNoMemory([&]() -> Status {
    while (!executor_.is_done()) {
      bool has_moved = false;
      ONEBIT_TRY(executor_.MakeProgress(&has_moved));
      if (!has_moved) ONEBIT_TRY(executor_.Wait(kWaitMs));
    }
    return OkStatus();
  });
  ledger_.CountTime(executor_.codec_ns(), begin);
  if (!status.ok()) return executor_.Fail(status);
  for (size_t i = 0; i < part->count; ++i) {
    if (executor_.is_finite(i)) {
      ONEBIT_TRY(CheckHeld(&comm_, part->calls[i],
                           part->calls[i].is_on_device() ? turns.held(i) : nullptr));
    } else {
      std::atomic_ref(turns.call(i).decision)
          .store(kernels::cuda::kNonfinite, std::memory_order_release);
    }
  }
  return OkStatus();
}

void HostProxy::CountCalls(const Job& job, const Status& status) {
  if (comm_.ranks() > 1) ledger_.CountMessages();
  if (!status.ok()) return ledger_.CountFailed(job.requests.size());
  for (const Part& part : std::span(job.parts).first(job.part_count)) {
    for (size_t i = 0; i < part.count; ++i) {
      const CallRequest& request = job.requests[part.first + i];
      const Plan& plan = part.PlanOf(i);
      if (part.piece_index == 0) {
        ledger_.Count(request, plan);
      } else {
        ledger_.CountPiece(request, plan);
      }
    }
  }
}

}  // namespace onebit
