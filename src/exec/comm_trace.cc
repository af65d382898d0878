// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/comm_trace.h"

#include <algorithm>

#include "base/format.h"

namespace onebit {
namespace {

// Rows of a rank. Each row has spans that nest, or spans that may overlap.
constexpr uint32_t kCallsRow = 0;
constexpr uint32_t kEnqueuingRow = 1;
constexpr uint32_t kFirstExchangeRow = 2;
constexpr uint32_t kFirstThreadRow = 8;

constexpr const char* kCallCategory = "call";
constexpr const char* kComputeCategory = "compute";
constexpr const char* kWaitCategory = "wait";
constexpr const char* kExchangeCategory = "exchange";
constexpr const char* kMessageCategory = "message";
constexpr const char* kEnqueueCategory = "enqueue";

std::string NameOfRow(uint32_t row) {
  if (row == kCallsRow) return "calls";
  if (row == kEnqueuingRow) return "enqueuing";
  if (row < kFirstThreadRow) return Format("exchange {}", row - kFirstExchangeRow + 1);
  return Format("compute thread {}", row - kFirstThreadRow + 1);
}

}  // namespace

Result<std::unique_ptr<CommTrace>> CommTrace::Open(const std::string& pattern, const Comm& comm) {
  const TraceSource source = {.rank = comm.rank(),
                              .comm_id = comm.id(),
                              .host = comm.hosts().HostOf(static_cast<uint32_t>(comm.rank())),
                              .hosts = comm.hosts().hosts(),
                              .has_other_processes = comm.has_other_processes(),
                              .name_of_row = NameOfRow};
  ONEBIT_ASSIGN_OR_RETURN(auto recorder, TraceRecorder::Open(pattern, source));
  return std::unique_ptr<CommTrace>(new CommTrace(std::move(recorder)));
}

TraceEvent CommTrace::EventOf(const CallDescriptor& call, const char* name,
                              const char* category) const {
  TraceEvent event;
  event.name = name;
  event.category = category;
  event.collective = NameOf(call.collective);
  event.codec = call.codec.Name();
  event.mode = call.codec.is_dense() ? nullptr : call.codec.Mode();
  event.call = call.sequence;
  return event;
}

const CallDescriptor& CommTrace::CallOf(const Step& step) const {
  return step.call == kAllCalls ? batch_->descriptor : batch_->calls[step.call].descriptor;
}

TraceEvent CommTrace::EventOf(const Step& step, const char* category) const {
  TraceEvent event = EventOf(CallOf(step), NameOf(step.kind), category);
  if (step.chunk != kAllChunks) event.chunk = step.chunk;
  event.segment = step.segment;
  event.bytes = step.region.bytes;
  return event;
}

void CommTrace::BeginBatch(const Batch& batch, Time begin) {
  batch_ = &batch;
  batch_begin_ = begin;
  exchange_begins_.fill(std::nullopt);
  wait_begin_.reset();
  moved_ = {};
}

void CommTrace::EndBatch(Time end) {
  AddBatch(end, /*has_failed=*/false);
  batch_ = nullptr;
}

void CommTrace::FailBatch(uint32_t missing_peer) {
  if (batch_ == nullptr) return;
  if (missing_peer != TraceEvent::kNone32) NoteReceived(missing_peer, /*is_due=*/true);
  EndWait(/*has_work=*/true);
  for (uint32_t exchange = 1; exchange <= kMostExchanges; ++exchange) {
    EndExchange(exchange, /*has_failed=*/true);
  }
  AddBatch(TraceClock::now(), /*has_failed=*/true);
  batch_ = nullptr;
  recorder_->Flush();
}

void CommTrace::AddBatch(Time end, bool has_failed) {
  const CallDescriptor& call = batch_->descriptor;
  TraceEvent event = EventOf(call, NameOf(call.collective), kCallCategory);
  event.begin = batch_begin_;
  event.end = end;
  event.row = kCallsRow;
  event.has_failed = has_failed;
  event.elements = event.bytes = 0;
  for (const Call& one : batch_->calls) {
    event.elements += one.plan->tensor_elements;
    event.bytes += one.plan->tensor_elements * kernels::BytesOf(one.plan->key.type);
  }
  recorder_->Add(event);
}

void CommTrace::AddStep(const Step& step, Time begin, Time end, uint32_t thread) {
  TraceEvent event = EventOf(step, kComputeCategory);
  event.begin = begin;
  event.end = end;
  event.row =
      thread == 0 ? kCallsRow : std::min(kFirstThreadRow + thread, TraceRecorder::kMostRows) - 1;
  event.elements = step.elements.count;
  recorder_->Add(event);
}

void CommTrace::AddCopies(Time begin, Time end) {
  TraceEvent event = EventOf(batch_->descriptor, "pack and unpack", kComputeCategory);
  event.begin = begin;
  event.end = end;
  event.row = kCallsRow;
  recorder_->Add(event);
}

void CommTrace::AddNative(Time begin, Time end) {
  TraceEvent event = EventOf(batch_->descriptor, NameOf(StepKind::kNative), kExchangeCategory);
  event.begin = begin;
  event.end = end;
  event.row = kFirstExchangeRow;
  recorder_->Add(event);
}

void CommTrace::AddWait() {
  const std::optional<uint32_t> received = moved_.due.has_value() ? moved_.due : moved_.early;
  const std::optional<uint32_t> peer = received.has_value() ? received : moved_.sent;
  const char* const name = received.has_value() ? "wait for message"
                           : moved_.is_stream   ? "wait for stream"
                           : peer.has_value()   ? "wait for send"
                                                : "wait";
  TraceEvent event = EventOf(batch_->descriptor, name, kWaitCategory);
  event.begin = *wait_begin_;
  event.end = TraceClock::now();
  event.row = kCallsRow;
  if (received.has_value() || !moved_.is_stream) event.peer = peer.value_or(TraceEvent::kNone32);
  recorder_->Add(event);
  wait_begin_.reset();
}

void CommTrace::BeginSend(const Step& step, Time begin) {
  BeginExchange(step.exchange, begin);
  NoteSent(step.peer);
}

void CommTrace::BeginReceive(const Step& step, Time begin, bool is_due) {
  BeginExchange(step.exchange, begin);
  NoteReceived(step.peer, is_due);
}

void CommTrace::BeginExchange(uint32_t exchange, Time begin) {
  std::optional<Time>& first = exchange_begins_[exchange - 1];
  if (!first.has_value()) first = begin;
}

void CommTrace::EndSend(const Step& step, size_t bytes, Time begin) {
  AddMessage(step, bytes, begin);
  NoteSent(step.peer);
}

void CommTrace::EndReceive(const Step& step, size_t bytes, Time begin, bool is_due) {
  AddMessage(step, bytes, begin);
  NoteReceived(step.peer, is_due);
}

void CommTrace::EndExchange(uint32_t exchange, bool has_failed) {
  const uint32_t index = exchange - 1;
  if (!exchange_begins_[index].has_value()) return;
  TraceEvent event = EventOf(batch_->descriptor, "exchange", kExchangeCategory);
  event.begin = *exchange_begins_[index];
  event.end = TraceClock::now();
  event.row = kFirstExchangeRow + index;
  event.exchange = exchange;
  event.has_failed = has_failed;
  recorder_->Add(event);
  exchange_begins_[index].reset();
}

void CommTrace::AddMessage(const Step& step, size_t bytes, Time begin) {
  TraceEvent event = EventOf(step, kMessageCategory);
  event.begin = begin;
  event.end = TraceClock::now();
  event.row = kFirstExchangeRow + step.exchange - 1u;
  event.may_overlap = true;
  event.exchange = step.exchange;
  event.peer = step.peer;
  event.bytes = bytes;
  recorder_->Add(event);
}

void CommTrace::BeginEnqueuing(const CallDescriptor& first, size_t calls) {
  enqueued_ = first;
  enqueued_calls_ = calls;
  enqueue_begin_ = TraceClock::now();
}

void CommTrace::AddEnqueued(const char* name, Time begin, uint32_t exchange) {
  TraceEvent event = EventOf(enqueued_, name, kEnqueueCategory);
  event.begin = begin;
  event.end = TraceClock::now();
  event.row = kEnqueuingRow;
  event.exchange = exchange;
  recorder_->Add(event);
}

void CommTrace::EndEnqueuing(bool has_succeeded) {
  const char* const name = NameOf(enqueued_calls_ == 1 ? enqueued_.collective : Collective::kGroup);
  TraceEvent event = EventOf(enqueued_, name, kEnqueueCategory);
  event.begin = enqueue_begin_;
  event.end = TraceClock::now();
  event.row = kEnqueuingRow;
  event.has_failed = !has_succeeded;
  recorder_->Add(event);
  if (!has_succeeded) recorder_->Flush();
}

}  // namespace onebit
