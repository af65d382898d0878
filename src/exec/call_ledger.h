// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CallLedger: keeps account of the calls of a communicator, whoever runs them.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "exec/call_outcome.h"
#include "exec/call_request.h"
#include "exec/comm_trace.h"
#include "steps/batch.h"

namespace onebit {

// Numbers calls, posts those that the ranks cannot compare on arrival, and records in compressors,
// counters and the trace how they ended. Functions that count may run on another thread than the
// others.
class CallLedger {
 public:
  // `comm` must outlive it.
  explicit CallLedger(Comm& comm) : comm_(comm) {}

  // Records what is enqueued on streams from now on, or nothing if `trace` is null. Borrowed.
  void set_trace(CommTrace* trace) { trace_ = trace; }
  CommTrace* trace() const { return trace_; }

  // Numbers calls that run together, and returns the number that they share. Pairs share none: each
  // gets one among those of its two ranks and its direction, and the result is 0.
  uint64_t Number(const Plan& plan, std::span<Call> calls);

  // Numbers a call of a stream-ordered transport and posts it to the control channel. Sizes of
  // messages cannot be compared on arrival, and a call that differs between ranks hangs, or does
  // worse. So the channel compares calls, except for facts that only the device knows. Only two
  // ranks know of a pair, which is neither numbered nor posted.
  void NumberAndPost(CallDescriptor* call);

  // Record that enqueuing begins and ends. EndEnqueuing also tells compressors what binds their
  // later calls, or that the calls failed; Count updates the counters.
  void BeginEnqueuing(const CallDescriptor& first, size_t calls);
  void EndEnqueuing(std::span<const CallRequest> requests, bool has_succeeded);
  // Stops the communicator after an error while calls were enqueued, since other ranks would wait
  // for what was not. Returns the error of the communicator.
  Status FailEnqueuing(const Status& cause);

  // Ends a call that the calling thread has run, or was to run: commits or discards, and counts.
  void End(const CallRequest& request, const Call& call, CallOutcome outcome);

  // Update the communicator's counters: after a successful call, after a piece of one that is not
  // its first, after calls that failed, with time that was spent on calls, and with the counters of
  // the endpoint.
  void Count(const CallRequest& request, const Plan& plan);
  void CountPiece(const CallRequest& request, const Plan& plan);
  void CountFailed(size_t calls) { Add(comm_.counters().failed_calls, calls); }
  void CountTime(uint64_t codec_ns, std::chrono::steady_clock::time_point begin);
  void CountMessages();

 private:
  Comm& comm_;
  CommTrace* trace_ = nullptr;
};

}  // namespace onebit
