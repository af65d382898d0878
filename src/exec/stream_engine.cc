// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/stream_engine.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/guard.h"
#include "base/log.h"
#include "exec/engine.h"
#include "wait/backoff.h"

namespace onebit {

Result<std::unique_ptr<StreamEngine>> StreamEngine::Create(Comm& comm, PlanCache& plans,
                                                           CallLedger& ledger,
                                                           const Devices& devices, int device) {
  plans.OrderByStreams();
  std::unique_ptr<StreamEngine> engine(new StreamEngine(comm, plans, ledger));
  ONEBIT_ASSIGN_OR_RETURN(engine->stream_, StreamExecutor::Create(comm, devices, device));
  if (comm.ranks() == 1) return engine;
  comm.RecordCalls();
  ONEBIT_TRY(engine->stream_->WatchDevice());
  ONEBIT_ASSIGN_OR_RETURN(engine->watch_,
                          StreamWatch::Start([raw = engine.get()] { raw->WatchStream(); }));
  return engine;
}

StreamEngine::~StreamEngine() {
  if (stream_ != nullptr) EndStream();
}

Status StreamEngine::Reserve(const Plan& plan) {
  const Plan* const plans[] = {&plan};
  return stream_->Reserve(plans, std::nullopt);
}

// A stream-ordered call returns before it has run, so this thread finds errors of the transport and
// other ranks, and calls that do not end. It makes no CUDA call: another thread of the application
// may hold the driver until the call ends that this one is to abort.
void StreamEngine::WatchStream() noexcept {
  try {
    comm_.SendCalls();
    if (!comm_.is_stopped() && CheckDeadline().ok() && CheckStream().ok()) return;
    // Releases streams that wait for a message that will never arrive.
    comm_.AbortEndpoint();
  } catch (const std::bad_alloc&) {
    static_cast<void>(comm_.FailWithoutMemory());
  }
}

Status StreamEngine::CheckDeadline() {
  const std::chrono::milliseconds timeout(comm_.options().timeout_ms);
  const auto age = stream_->Age();
  if (age < timeout) return OkStatus();
  return comm_.Fail(Error(Code::kTimeout,
                          "rank {}: a call on a stream has not finished after {:.1f} s "
                          "(ONEBIT_COLLECTIVE_TIMEOUT_MS); does every rank make it?",
                          comm_.rank(), std::chrono::duration<double>(age).count()));
}

Status StreamEngine::CheckResidualLocation(const MemoryLocation& location) const {
  if (location.is_device() && location.device == stream_->device()) return OkStatus();
  return Error(Code::kInvalidUsage,
               "rank {}: the compressor is for {}, but transport {} works on memory of CUDA device "
               "{}: set `memory` to onebitMemoryDevice in its config",
               comm_.rank(), Describe(location), comm_.transport_name(), stream_->device());
}

// Must not free memory that unfinished calls use, because freeing would wait for them.
void StreamEngine::EndStream() {
  constexpr std::chrono::milliseconds kEndTimeout{5000};
  constexpr std::chrono::milliseconds kAbortTimeout{10000};  // an abort may take 6 s
  watch_.reset();
  stream_->EndWatch();
  const bool is_healthy = !comm_.is_stopped() && stream_->IsIdleWithin(kEndTimeout);
  if (is_healthy && (!stream_->has_captured() || comm_.ranks() == 1)) return;
  if (is_healthy) {
    // A graph replay may wait for a lost peer, and freeing memory would wait for the replay.
    const std::future<void> freed = stream_->FreeInBackground(&host_calls_);
    if (!freed.valid() || freed.wait_for(kEndTimeout) == std::future_status::ready) return;
    Log(LogLevel::kWarn,
        "rank {}: a graph with calls of this communicator is still being replayed, or the device "
        "is busy with other work, so the communicator is aborted; wait for replays before "
        "destroying it",
        comm_.rank());
    comm_.AbortEndpoint();
    static_cast<void>(freed.wait_for(kAbortTimeout));
    return;
  }
  if (comm_.ranks() > 1) comm_.AbortEndpoint();
  if (stream_->IsIdleWithin(kAbortTimeout)) return;
  Log(LogLevel::kWarn,
      "rank {}: calls on a stream do not finish, so their working memory is not freed",
      comm_.rank());
  stream_->LeakMemory();
  host_calls_.Release();
}

// Finds errors of calls that have returned already.
Status StreamEngine::CheckStream() {
  if (comm_.is_stopped()) return OkStatus();
  if (Status status = stream_->FindFailure(); !status.ok()) {
    if (status.code() == Code::kRemoteError) AwaitCause();
    return comm_.Fail(std::move(status));
  }
  if (comm_.ranks() == 1) return OkStatus();
  if (Status status = comm_.endpoint().AsyncError(); !status.ok()) {
    return comm_.Fail(std::move(status));
  }
  return OkStatus();
}

// The failing rank reports the cause to all others as soon as its watch thread notices.
void StreamEngine::AwaitCause() const {
  constexpr std::chrono::seconds kTimeToReport{2};
  PollUntil(std::chrono::steady_clock::now() + kTimeToReport,
            [this] { return comm_.is_stopped(); });
}

Status StreamEngine::Run(std::span<GroupMember> members) {
  engines_.clear();
  for (const GroupMember& member : members) engines_.push_back(member.engine->stream());
  if (members.size() > 1) {
    for (const GroupMember& member : members) {
      ONEBIT_TRY(member.engine->stream()->Prepare(member.requests));
    }
    return EnqueueAll(engines_);
  }
  const std::span<const CallRequest> requests = members[0].requests;
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope,
                          DeviceScope::Enter(stream_->devices(), stream_->device()));
  const bool is_on_host =
      std::any_of(requests.begin(), requests.end(),
                  [](const CallRequest& request) { return !request.location.is_device(); });
  if (is_on_host) return RunFromHost(requests);
  ONEBIT_TRY(Prepare(requests));
  return EnqueueAll(engines_);
}

Status StreamEngine::CheckLocation(const CallRequest& request) const {
  const MemoryLocation& location = request.location;
  if (location.is_device() && location.device == stream_->device()) return OkStatus();
  return Error(Code::kInvalidUsage,
               "rank {}: the buffers are {}, but this communicator works on device {}",
               comm_.rank(), Describe(request.location), stream_->device());
}

Status StreamEngine::Prepare(std::span<const CallRequest> requests) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope,
                          DeviceScope::Enter(stream_->devices(), stream_->device()));
  ONEBIT_TRY(CheckStream());
  for (const CallRequest& request : requests) ONEBIT_TRY(CheckLocation(request));
  requests_ = requests;
  owned_plans_.clear();
  plans_in_batch_.clear();
  for (const CallRequest& request : requests) {
    if (request.collective == Collective::kAllToAllv && requests.size() > 1) {
      return Error(Code::kInvalidUsage,
                   "rank {}: an all-to-all-v on a CUDA stream cannot be part of a group: call it "
                   "before or after the group",
                   comm_.rank());
    }
    owned_plans_.push_back(plans_.PlanFor(request));
    plans_.TakeCounts(request);
    plans_in_batch_.push_back(owned_plans_.back().get());
  }
  ONEBIT_TRY(stream_->Reserve(plans_in_batch_, requests[0].stream));
  calls_.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    calls_.push_back(CallOf(requests[i], *owned_plans_[i], comm_, nullptr));
  }
  return OkStatus();
}

// Enqueues each phase on all communicators of the thread before the next phase, because their ranks
// may wait for each other.
Status StreamEngine::EnqueueAll(std::span<StreamEngine* const> engines) {
  for (StreamEngine* engine : engines) {
    for (Call& call : engine->calls_) engine->ledger_.NumberAndPost(&call.descriptor);
    engine->ledger_.BeginEnqueuing(engine->calls_[0].descriptor, engine->calls_.size());
  }
  const Status status = CatchNoMemory([&] { return EnqueuePhases(engines); });
  Status first_failure;
  for (StreamEngine* engine : engines) {
    engine->EndBatch(status.ok());
    if (status.ok()) continue;
    Status failure = engine->ledger_.FailEnqueuing(status);
    if (first_failure.ok()) first_failure = std::move(failure);
  }
  return first_failure;
}

Status StreamEngine::EnqueuePhases(std::span<StreamEngine* const> engines) {
  const auto for_each = [&](auto body) -> Status {
    for (StreamEngine* engine : engines) {
      ONEBIT_ASSIGN_OR_RETURN(
          const DeviceScope scope,
          DeviceScope::Enter(engine->stream_->devices(), engine->stream_->device()));
      ONEBIT_TRY(body(*engine->stream_, engine->ledger_.trace()));
    }
    return OkStatus();
  };
  size_t begun = 0;
  ONEBIT_TRY(for_each([&](StreamExecutor& stream, CommTrace*) {
    StreamEngine& engine = *engines[begun++];
    return stream.Begin(engine.calls_, engine.requests_[0].stream);
  }));
  uint32_t exchanges = 0;
  for (const StreamEngine* engine : engines) {
    exchanges = std::max(exchanges, engine->stream_->exchanges());
  }
  for (uint32_t exchange = 1; exchange <= exchanges; ++exchange) {
    ONEBIT_TRY(for_each([&](StreamExecutor& stream, CommTrace* trace) {
      const EnqueueSpan span(trace, stream.NameOfPhase(exchange - 1));
      return stream.Compute(exchange - 1);
    }));
    ONEBIT_TRY(for_each([&](StreamExecutor& stream, CommTrace* trace) {
      const EnqueueSpan span(trace, "seal", exchange);
      return stream.PrepareMessages(exchange);
    }));
    ONEBIT_TRY(ExchangeOnStreams(engines, exchange));
    ONEBIT_TRY(for_each([&](StreamExecutor& stream, CommTrace* trace) {
      const EnqueueSpan span(trace, "check", exchange);
      return stream.Check(exchange);
    }));
  }
  return for_each([exchanges](StreamExecutor& stream, CommTrace* trace) -> Status {
    {
      const EnqueueSpan span(trace, stream.NameOfPhase(exchanges));
      ONEBIT_TRY(stream.Compute(exchanges));
    }
    const EnqueueSpan span(trace, "commit");
    return stream.End();
  });
}

// Ends every transport group that has begun, even after an error: an open group would swallow later
// calls of the thread.
Status StreamEngine::ExchangeOnStreams(std::span<StreamEngine* const> engines, uint32_t exchange) {
  Status status;
  size_t begun = 0;
  while (begun < engines.size() && status.ok()) {
    StreamEngine& engine = *engines[begun];
    if (engine.comm_.ranks() > 1) {
      const auto scope = DeviceScope::Enter(engine.stream_->devices(), engine.stream_->device());
      status = CatchNoMemory([&]() -> Status {
        return scope.ok() ? engine.comm_.endpoint().BeginGroup() : scope.status();
      });
      if (!status.ok()) break;  // no group to end
      const EnqueueSpan span(engine.ledger_.trace(), "exchange", exchange);
      status = CatchNoMemory([&] { return engine.stream_->PostMessages(exchange); });
    }
    ++begun;
  }
  for (size_t i = 0; i < begun; ++i) {
    StreamEngine& engine = *engines[i];
    if (engine.comm_.ranks() == 1) continue;
    const auto scope = DeviceScope::Enter(engine.stream_->devices(), engine.stream_->device());
    const EnqueueSpan span(engine.ledger_.trace(), "end exchange", exchange);
    Status ended = CatchNoMemory([&] { return engine.comm_.endpoint().EndGroup(); });
    if (status.ok()) status = std::move(ended);
  }
  return status;
}

void StreamEngine::EndBatch(bool has_succeeded) {
  ledger_.EndEnqueuing(requests_, has_succeeded);
  if (comm_.ranks() > 1) ledger_.CountMessages();
  if (has_succeeded) {
    for (size_t i = 0; i < requests_.size(); ++i) ledger_.Count(requests_[i], *owned_plans_[i]);
  } else {
    stream_->Drop(requests_[0].stream);
    ledger_.CountFailed(requests_.size());
  }
  requests_ = {};
}

// Calls on host buffers block: the data is copied to the device and back.
Status StreamEngine::RunFromHost(std::span<const CallRequest> requests) {
  for (const CallRequest& request : requests) {
    if (request.location.is_device()) {
      return Error(Code::kInvalidUsage,
                   "rank {}: the calls of a group work on host memory and on memory of a device: "
                   "make two groups",
                   comm_.rank());
    }
    if (request.compressor != nullptr && request.count != 0) {
      return Error(Code::kInvalidUsage,
                   "rank {}: transport {} compresses memory of CUDA devices only, but the buffers "
                   "are host memory",
                   comm_.rank(), comm_.transport_name());
    }
  }
  const Devices& devices = stream_->devices();
  if (host_calls_stream_.get() == nullptr) {
    ONEBIT_ASSIGN_OR_RETURN(host_calls_stream_, DeviceStream::Create(devices));
  }
  const DeviceStream& stream = host_calls_stream_;
  std::vector<CallRequest>& staged = host_requests_;
  staged.assign(requests.begin(), requests.end());
  size_t needed = 0;
  for (const CallRequest& request : requests) {
    const BufferBytes bytes = BytesOf(request, comm_);
    needed += RoundUp(bytes.input, kCacheLine) + RoundUp(bytes.output, kCacheLine);
  }
  const MemoryLocation location{MemoryKind::kDevice, stream_->device()};
  ONEBIT_TRY(host_calls_.Reserve(
      needed, [&](size_t bytes) { return Memory::Create(location, &devices, bytes, "a call"); }));
  std::byte* next = host_calls_.data();
  for (CallRequest& request : staged) {
    const BufferBytes bytes = BytesOf(request, comm_);
    std::byte* const input = next;
    std::byte* const output = input + RoundUp(bytes.input, kCacheLine);
    next = output + RoundUp(bytes.output, kCacheLine);
    ONEBIT_TRY(devices.Copy(input, request.sendbuff, bytes.input, stream.get()));
    if (request.collective == Collective::kAllToAllv) {  // its gaps must stay unchanged
      ONEBIT_TRY(devices.Copy(output, request.recvbuff, bytes.output, stream.get()));
    }
    request.sendbuff = input;
    request.recvbuff = output;
    request.location = location;
    request.stream = stream.get();
  }
  ONEBIT_TRY(Prepare(staged));  // engines_ has this one alone
  ONEBIT_TRY(EnqueueAll(engines_));
  ONEBIT_TRY(AwaitCall());
  for (size_t i = 0; i < staged.size(); ++i) {
    ONEBIT_TRY(devices.Copy(requests[i].recvbuff, staged[i].recvbuff,
                            BytesOf(requests[i], comm_).output, stream.get()));
  }
  return devices.Synchronize(stream.get(), comm_.options().timeout_ms);
}

// Waits until the call has ended, or until the device, the transport or the group reports a
// failure.
Status StreamEngine::AwaitCall() {
  for (Backoff backoff;; backoff.Pause()) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_done, stream_->IsIdle());
    ONEBIT_TRY(CheckStream());
    if (is_done) return OkStatus();
    ONEBIT_TRY(comm_.FindFailure());  // the watch enforces the deadline
  }
}

}  // namespace onebit
