// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Records when the calls of a communicator compute, exchange messages and wait, for ONEBIT_TRACE.
// An executor has none unless something is recorded, and without it reads no clock for events.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/nvtx_range.h"
#include "base/trace_recorder.h"
#include "comm/comm.h"
#include "steps/batch.h"

namespace onebit {

// Used by one thread at a time. Everything but Open, FailBatch and EndEnqueuing of a failed call
// neither locks nor allocates.
class CommTrace {
 public:
  using Time = TraceClock::time_point;

  // `pattern` is the value of ONEBIT_TRACE.
  static Result<std::unique_ptr<CommTrace>> Open(const std::string& pattern, const Comm& comm);

  // A batch that HostExecutor runs. It must stay valid until its end.
  void BeginBatch(const Batch& batch, Time begin);
  void EndBatch(Time end);
  // `missing_peer`: whose message had not arrived, or TraceEvent::kNone32. Writes the file, because
  // the process may end now.
  void FailBatch(uint32_t missing_peer);

  // A step of the batch. Thread 0 is the executor's own, the others are its compute threads.
  void AddStep(const Step& step, Time begin, Time end, uint32_t thread = 0);
  // Steps that pack messages of a group, or unpack them.
  void AddCopies(Time begin, Time end);
  void AddNative(Time begin, Time end);

  // The executor has nothing to do. A wait that has begun goes on until EndWait ends it.
  void BeginWait() {
    if (!wait_begin_.has_value()) wait_begin_ = TraceClock::now();
  }
  void BeginWaitForStream() {
    BeginWait();
    moved_.is_stream = true;
  }
  // Ends the wait, if there is one: with a message that was due, or because the executor has
  // something to do. It is named after the first peer whose message was due, or else that has
  // moved.
  void EndWait(bool has_work) {
    if (wait_begin_.has_value()) {
      if (!has_work && !moved_.due.has_value()) return;
      AddWait();
    }
    moved_ = {};
  }

  // A message has set out here, or its header has arrived. `begin`: for a send, before the
  // transport had it, since its peer may have it as soon. `is_due`: it is of the first exchange
  // that has not ended, not an early one of the next.
  void BeginSend(const Step& step, Time begin);
  void BeginReceive(const Step& step, Time begin, bool is_due);
  void EndSend(const Step& step, size_t bytes, Time begin);
  void EndReceive(const Step& step, size_t bytes, Time begin, bool is_due);
  // The last message of an exchange is done. Its first one has begun it.
  void EndExchange(uint32_t exchange, bool has_failed = false);

  // Calls that are enqueued on a stream, the first of which is `first`.
  void BeginEnqueuing(const CallDescriptor& first, size_t calls);
  void AddEnqueued(const char* name, Time begin, uint32_t exchange);
  void EndEnqueuing(bool has_succeeded);

 private:
  // Messages that have moved since the wait began.
  struct Moved {
    std::optional<uint32_t> due, early, sent;  // by the first such peer
    bool is_stream = false;
  };

  explicit CommTrace(std::unique_ptr<TraceRecorder> recorder) : recorder_(std::move(recorder)) {}

  // The event's call, as its arguments.
  TraceEvent EventOf(const CallDescriptor& call, const char* name, const char* category) const;
  TraceEvent EventOf(const Step& step, const char* category) const;
  const CallDescriptor& CallOf(const Step& step) const;
  void NoteReceived(uint32_t peer, bool is_due) {
    std::optional<uint32_t>& first = is_due ? moved_.due : moved_.early;
    if (!first.has_value()) first = peer;
  }
  void NoteSent(uint32_t peer) {
    if (!moved_.sent.has_value()) moved_.sent = peer;
  }
  void AddWait();
  void BeginExchange(uint32_t exchange, Time begin);
  void AddMessage(const Step& step, size_t bytes, Time begin);
  void AddBatch(Time end, bool has_failed);

  const std::unique_ptr<TraceRecorder> recorder_;
  const Batch* batch_ = nullptr;  // null: none is running
  Time batch_begin_;
  std::array<std::optional<Time>, kMostExchanges> exchange_begins_;
  std::optional<Time> wait_begin_;
  Moved moved_;
  CallDescriptor enqueued_;
  size_t enqueued_calls_ = 0;
  Time enqueue_begin_;
};

// A part of what is enqueued on a stream, during the scope. A null name: nothing is.
class EnqueueSpan {
 public:
  EnqueueSpan(CommTrace* trace, const char* name, uint32_t exchange = TraceEvent::kNone32)
      : trace_(name == nullptr ? nullptr : trace),
        name_(name),
        exchange_(exchange),
        begin_(trace_ == nullptr ? CommTrace::Time() : TraceClock::now()),
        range_(name) {}
  ~EnqueueSpan() {
    if (trace_ != nullptr) trace_->AddEnqueued(name_, begin_, exchange_);
  }
  EnqueueSpan(const EnqueueSpan&) = delete;
  EnqueueSpan& operator=(const EnqueueSpan&) = delete;

 private:
  CommTrace* const trace_;
  const char* const name_;
  const uint32_t exchange_;
  const CommTrace::Time begin_;
  const NvtxRange range_;
};

}  // namespace onebit
