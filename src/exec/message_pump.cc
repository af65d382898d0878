// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/message_pump.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include "exec/group_messages.h"
#include "plan/reduce_op.h"
#include "wait/backoff.h"

namespace onebit {
namespace {

// Limits the wait for the table of a peer whose calls differ, which only improves the error text.
constexpr auto kTableWait = std::chrono::seconds(1);
constexpr size_t kMostTablePayload = size_t{256} << 20;

// True if a failed request no longer references user buffers. Those of an aborted endpoint do until
// they are cancelled.
bool IsDead(const Status& status) { return status.code() != Code::kAborted; }

}  // namespace

MessagePump::MessagePump(Comm& comm, StepSchedule& schedule)
    : comm_(comm),
      endpoint_(comm.endpoint()),
      schedule_(schedule),
      is_full_(static_cast<size_t>(comm.ranks())),
      inbound_(static_cast<size_t>(comm.ranks())) {}

void MessagePump::Reserve(const Plan& plan) {
  const size_t steps = plan.steps.size();
  if (steps <= messages_.size()) return;
  expected_.resize(steps);
  sending_.reserve(steps);
  receiving_.reserve(steps);
  messages_.resize(steps);  // last, because its size tells whether all others were resized
}

void MessagePump::Start(const Batch& batch, std::span<kernels::Checksum> checksums,
                        CommTrace* trace) {
  batch_ = &batch;
  plan_ = batch.plan;
  checksums_ = checksums;
  trace_ = trace;
  sending_.clear();
  receiving_.clear();
  native_ = nullptr;
  weight_of_all_.reset();
  std::fill_n(messages_.begin(), plan_->steps.size(), MessageState::kPending);
  for (uint32_t peer = 0; peer < plan_->ranks; ++peer) {
    Inbound& inbound = inbound_[peer];
    inbound.request = nullptr;
    inbound.step = kNoStep;
    inbound.left = plan_->MessagesFrom(peer);
    inbound.weight.reset();
  }
}

// A plan has at most one native step.
Status MessagePump::PollNative(bool* has_moved) {
  if (native_ == nullptr) {
    const onebitRedOp_t op = ApiOp(batch_->descriptor.op);
    ONEBIT_ASSIGN_OR_RETURN(const bool has_started,
                            endpoint_.AllReduce(batch_->calls[0].input, batch_->calls[0].output,
                                                plan_->key.count, op, &native_));
    if (!has_started) return OkStatus();
    native_bytes_ = 0;
    if (trace_ != nullptr) native_begin_ = TraceClock::now();
    *has_moved = true;
  }
  const auto state = endpoint_.Test(native_);
  if (state.ok() && state.value() != TransferState::kDone) {
    // Received bytes are progress and postpone the deadline.
    ONEBIT_ASSIGN_OR_RETURN(const Endpoint::MessageSize done, endpoint_.Probe(native_));
    *has_moved |= done.payload_bytes != std::exchange(native_bytes_, done.payload_bytes);
    return OkStatus();
  }
  if (!state.ok() && !IsDead(state.status())) return state.status();
  native_ = nullptr;
  ONEBIT_TRY(state.status());
  *has_moved = true;
  if (trace_ != nullptr) trace_->AddNative(native_begin_, TraceClock::now());
  schedule_.Finish(schedule_.native(), false);
  return OkStatus();
}

// A peer without room holds up later sends to itself alone, which keep their order: others may wait
// for a message that stands behind them.
Status MessagePump::StartSends(bool* has_moved) {
  if (schedule_.sends().empty()) return OkStatus();
  std::fill(is_full_.begin(), is_full_.end(), uint8_t{0});
  Status status;
  schedule_.sends().RemoveIf([&](uint32_t index) {
    const Step& step = plan_->steps[index];
    uint8_t& is_full = is_full_[step.peer];
    if (!status.ok() || is_full != 0) return false;
    const size_t payload_bytes = PayloadBytesOf(step);
    const CommTrace::Time begin = trace_ == nullptr ? CommTrace::Time() : TraceClock::now();
    MessageRequest request = nullptr;
    const Result<bool> has_started = endpoint_.Send(static_cast<int>(step.peer), HeaderOf(index),
                                                    {batch_->Read(step), payload_bytes}, &request);
    status = has_started.status();
    is_full = status.ok() && has_started.value() ? 0 : 1;
    if (is_full != 0) return false;
    sending_.push_back({request, index, payload_bytes, begin});
    comm_.CountNetworkBytes(step.peer, kHeaderBytes + payload_bytes);
    if (trace_ != nullptr) trace_->BeginSend(step, begin);
    *has_moved = true;
    return true;
  });
  return status;
}

size_t MessagePump::PayloadBytesOf(const Step& send) const {
  if (!MayBeAbsent(send)) return send.region.bytes;
  if (!IsPacket(send)) return IsAbsent(batch_->calls[send.call]) ? 0 : send.region.bytes;
  return WeightOf(batch_->Read(send)) == 0 ? kWeightBytes : send.region.bytes;
}

HeaderBytes MessagePump::HeaderOf(uint32_t index) const {
  const Step& step = plan_->steps[index];
  MessageHeader header = {
      .call = CallOf(step),
      .exchange = step.exchange,
      .is_nonfinite = schedule_.is_nonfinite(index),
      .has_payload_checksum = step.packet != kNoPacket,
      .segment = step.segment,
      .segment_count = static_cast<uint16_t>(plan_->segments()),
  };
  if (step.packet != kNoPacket) header.payload_checksum = checksums_[step.packet];
  if (HasWeightInHeader(step)) {
    header.payload_checksum.sum =
        std::bit_cast<uint32_t>(batch_->calls[step.call].compressor->weight());
  }
  HeaderBytes bytes;
  EncodeHeader(header, &bytes);
  return bytes;
}

template <typename Take>
Status MessagePump::TakeEnded(std::vector<InFlight>* messages, bool* has_moved, const Take& take) {
  for (size_t i = 0; i < messages->size();) {
    const InFlight message = (*messages)[i];
    const auto state = endpoint_.Test(message.request);
    if (state.ok() ? state.value() != TransferState::kDone : !IsDead(state.status())) {
      ONEBIT_TRY(state.status());
      ++i;
      continue;
    }
    (*messages)[i] = messages->back();
    messages->pop_back();
    ONEBIT_TRY(state.status());
    *has_moved = true;
    ONEBIT_TRY(take(message));
  }
  return OkStatus();
}

Status MessagePump::PollSends(bool* has_moved) {
  return TakeEnded(&sending_, has_moved, [this](const InFlight& message) -> Status {
    messages_[message.step] = MessageState::kDone;
    if (trace_ != nullptr) {
      trace_->EndSend(plan_->steps[message.step], message.payload_bytes, message.begin);
    }
    schedule_.Finish(message.step, false);
    return OkStatus();
  });
}

Status MessagePump::PollReceives(bool* has_moved) {
  for (uint32_t peer = 0; peer < plan_->ranks; ++peer) ONEBIT_TRY(PollHeader(peer, has_moved));
  return TakeEnded(&receiving_, has_moved,
                   [this](const InFlight& message) { return CompleteReceive(message); });
}

// Advances the messages of one peer: posts a receive, checks its header, and receives the payload
// when its step may run. Posts the next receive at once, because its header may have arrived.
Status MessagePump::PollHeader(uint32_t peer, bool* has_moved) {
  Inbound& inbound = inbound_[peer];
  while (true) {
    if (inbound.request == nullptr) {
      if (inbound.left == 0) return OkStatus();
      ONEBIT_ASSIGN_OR_RETURN(
          const bool is_posted,
          endpoint_.Receive(static_cast<int>(peer), inbound.header, &inbound.request));
      if (!is_posted) return OkStatus();
      --inbound.left;
    }
    if (inbound.step == kNoStep) {
      const auto state = endpoint_.Test(inbound.request);
      if (!state.ok()) {
        if (IsDead(state.status())) inbound.request = nullptr;
        return state.status();
      }
      if (state.value() == TransferState::kPending) return OkStatus();
      *has_moved = true;
      ONEBIT_TRY(CheckHeader(peer));
    }
    if (!schedule_.MayRun(inbound.step)) return OkStatus();
    *has_moved = true;
    ONEBIT_TRY(Accept(peer));
  }
}

// Headers of an all-to-all-v carry the count of the message, all others the count of the call.
CallDescriptor MessagePump::CallOf(const Step& message) const {
  if (plan_->key.is_pairs()) return batch_->calls[message.call].descriptor;
  CallDescriptor call = batch_->descriptor;
  if (call.collective == Collective::kAllToAllv) call.count = message.elements.count;
  return call;
}

CallDescriptor MessagePump::CallFrom(uint32_t peer) const {
  if (plan_->key.is_pairs()) return CallOf(plan_->steps[PostedReceive(peer)]);
  const uint32_t first = plan_->ReceiveStep(1, peer, 0);
  return first == kNoStep ? batch_->descriptor : CallOf(plan_->steps[first]);
}

uint32_t MessagePump::StepFor(uint32_t peer, const MessageHeader& header) const {
  if (!plan_->key.is_pairs()) return plan_->ReceiveStep(header.exchange, peer, header.segment);
  const uint32_t posted = PostedReceive(peer);
  return header.exchange == plan_->steps[posted].exchange && header.segment == 0 ? posted : kNoStep;
}

Status MessagePump::CheckHeader(uint32_t peer) {
  Inbound& inbound = inbound_[peer];
  ONEBIT_ASSIGN_OR_RETURN(const Endpoint::MessageSize size, endpoint_.Probe(inbound.request));
  auto decoded = DecodeHeader(
      std::span(inbound.header).first(std::min(size.header_bytes, inbound.header.size())));
  if (!decoded.ok()) {
    return Error(decoded.status().code(), "message from rank {}: {}", peer,
                 decoded.status().text());
  }
  const MessageHeader& header = inbound.decoded = decoded.value();
  // Never set by host executors, which stop sending at a failure (FORMAT.md, flag bit 2).
  if (header.has_failed) {
    return Error(Code::kRemoteError, "rank {} failed in {} or before it", peer,
                 Describe(header.call));
  }
  const CallDescriptor call = CallFrom(peer);
  if (header.call != call) {
    if (batch_->is_group()) ONEBIT_TRY(CompareCalls(peer, size.payload_bytes));
    const Compressor* const compressor = batch_->calls[0].compressor;
    const uint32_t own_mask = compressor == nullptr ? 0 : compressor->mask_digest();
    return Error(Code::kMismatch,
                 "rank {} made a different call ({}): {}; make the same calls in the same order on "
                 "all ranks",
                 peer, Describe(header.call), DescribeDifference(call, header.call, own_mask));
  }
  if (header.segment_count != plan_->segments()) {
    return Error(
        Code::kMismatch,
        "rank {} sends {} segments per chunk, this rank {}: ONEBIT_SEGMENT_ELEMENTS differs", peer,
        header.segment_count, plan_->segments());
  }
  const bool is_compressed = !batch_->is_group() && HasPackets(call, header.exchange);
  const bool may_be_nonfinite = is_compressed && call.codec.has_verdict();
  if (header.has_payload_checksum != (is_compressed || batch_->is_group()) ||
      (header.is_nonfinite && !may_be_nonfinite)) {
    return Error(Code::kCorrupt, "rank {} sent flags that do not fit a {} call", peer,
                 is_compressed        ? "compressed"
                 : batch_->is_group() ? "group's"
                                      : "dense");
  }
  inbound.step = StepFor(peer, header);
  if (inbound.step == kNoStep || messages_[inbound.step] != MessageState::kPending) {
    return Error(Code::kCorrupt, "rank {} sent {} of exchange {} twice or unasked", peer,
                 SegmentText(header.exchange, header.segment), header.exchange);
  }
  messages_[inbound.step] = MessageState::kArrived;
  inbound.payload_bytes = size.payload_bytes;
  const Step& step = plan_->steps[inbound.step];
  if (trace_ != nullptr) {
    inbound.arrival = TraceClock::now();
    trace_->BeginReceive(step, inbound.arrival, schedule_.IsDue(step));
  }
  const bool has_length = size.payload_bytes == step.region.bytes;
  if (!has_length && plan_->key.collective == Collective::kAllToAllv && !is_compressed) {
    return Error(
        Code::kMismatch,
        "rank {} sent {} bytes of a message of {} elements, not {}: between devices long messages "
        "travel in pieces, so both ranks' buffers must be on devices, or both on the host",
        peer, size.payload_bytes, call.count, step.region.bytes);
  }
  const size_t absent_bytes = IsPacket(step) ? kWeightBytes : 0;
  if (!has_length && !(MayBeAbsent(step) && size.payload_bytes == absent_bytes)) {
    return Error(Code::kCorrupt, "rank {} sent {} payload bytes for {} of exchange {}, not {}",
                 peer, size.payload_bytes, SegmentText(header.exchange, header.segment),
                 header.exchange, step.region.bytes);
  }
  return OkStatus();
}

Status MessagePump::CompareCalls(uint32_t peer, size_t payload_bytes) {
  Inbound& inbound = inbound_[peer];
  const CallDescriptor& theirs = inbound.decoded.call;
  CallDescriptor alike = theirs;
  alike.mask_digest = batch_->descriptor.mask_digest;
  if (alike != batch_->descriptor || payload_bytes < batch_->digests.size_bytes() ||
      payload_bytes > kMostTablePayload) {
    return OkStatus();
  }
  std::vector<std::byte> payload(payload_bytes);
  ONEBIT_TRY(endpoint_.Accept(inbound.request, payload));
  bool has_come = false;
  bool is_dead = false;
  const auto is_over = [&] {
    const auto state = endpoint_.Test(inbound.request);
    has_come = state.ok() && state.value() == TransferState::kDone;
    is_dead = has_come || (!state.ok() && IsDead(state.status()));
    return has_come || !state.ok();
  };
  PollUntil(std::chrono::steady_clock::now() + kTableWait, is_over,
            [&] { return comm_.is_stopped() || !endpoint_.Progress().ok(); });
  if (!is_dead) endpoint_.Cancel(inbound.request);  // it still references the payload
  inbound.request = nullptr;
  return has_come ? CompareTable(*batch_, peer, payload) : OkStatus();
}

Status MessagePump::Accept(uint32_t peer) {
  Inbound& inbound = inbound_[peer];
  const Step& step = plan_->steps[inbound.step];
  ONEBIT_TRY(endpoint_.Accept(inbound.request, {batch_->Write(step), inbound.payload_bytes}));
  schedule_.set_nonfinite(inbound.step, inbound.decoded.is_nonfinite);
  expected_[inbound.step] = inbound.decoded.payload_checksum;
  receiving_.push_back({inbound.request, inbound.step, inbound.payload_bytes, inbound.arrival});
  inbound.request = nullptr;
  inbound.step = kNoStep;
  return OkStatus();
}

Status MessagePump::CompleteReceive(const InFlight& message) {
  const uint32_t index = message.step;
  const Step& step = plan_->steps[index];
  const bool is_nonfinite = schedule_.is_nonfinite(index);
  if (batch_->is_group()) {
    ONEBIT_TRY(CheckGroupMessage(*batch_, step, expected_[index]));
  } else if (IsPacket(step)) {
    const std::span packet(batch_->Read(step), message.payload_bytes);
    Status status = CheckPacket(packet, step.shape, is_nonfinite, expected_[index]);
    if (status.ok() && step.shape.is_weighted && !is_nonfinite) {
      status = TakeWeight(step, WeightOf(packet.data()));
    }
    if (!status.ok()) {
      return Error(status.code(), "packet from rank {}, {} of exchange {}: {}", step.peer,
                   SegmentText(step.exchange, step.segment), step.exchange, status.text());
    }
  } else if (HasWeightInHeader(step)) {
    const float weight = std::bit_cast<float>(expected_[index].sum);
    Status status = CheckWeight(weight, kMostWeight);
    if (status.ok()) status = TakeWeight(step, weight);
    if (status.ok() && message.payload_bytes != (weight == 0 ? 0 : step.region.bytes)) {
      status = Error(Code::kCorrupt, "the weight is {}, but {} bytes follow", weight,
                     message.payload_bytes);
    }
    if (!status.ok()) {
      return Error(status.code(), "elements from rank {}, {} of exchange {}: {}", step.peer,
                   SegmentText(step.exchange, step.segment), step.exchange, status.text());
    }
    std::memcpy(batch_->packets + step.own_source, &weight, sizeof(weight));
  }
  if (step.packet != kNoPacket) checksums_[step.packet] = expected_[index];  // it is passed on
  messages_[index] = MessageState::kDone;
  if (trace_ != nullptr) {
    trace_->EndReceive(step, message.payload_bytes, message.begin, schedule_.IsDue(step));
  }
  schedule_.Finish(index, is_nonfinite);
  return OkStatus();
}

std::string MessagePump::SegmentText(uint32_t exchange, uint32_t segment) const {
  const PlanKey& key = plan_->key;
  const bool is_inside_host = key.has_two_levels && PassesInsideHosts(key.collective, exchange);
  if (!is_inside_host || batch_->is_group()) return Format("segment {}", segment);
  const bool is_of_host = key.collective == Collective::kAllReduce;  // the others count chunks
  return Format("segment {} of {} {}", segment % plan_->segments(),
                is_of_host ? "the chunk for host" : "chunk", segment / plan_->segments());
}

Status MessagePump::TakeWeight(const Step& message, float weight) {
  std::optional<float>& first =
      message.exchange > 2 ? weight_of_all_ : inbound_[message.peer].weight;
  if (weight != first.value_or(weight)) {
    return Error(Code::kCorrupt, "the weight is {}, but {} in another message", weight, *first);
  }
  first = weight;
  return OkStatus();
}

void MessagePump::CancelAll() {
  for (const InFlight& message : sending_) endpoint_.Cancel(message.request);
  for (const InFlight& message : receiving_) endpoint_.Cancel(message.request);
  for (Inbound& inbound : inbound_) {
    if (inbound.request != nullptr) endpoint_.Cancel(inbound.request);
    inbound.request = nullptr;
  }
  if (native_ != nullptr) endpoint_.Cancel(native_);
  native_ = nullptr;
  sending_.clear();
  receiving_.clear();
}

uint32_t MessagePump::LatePeer() const {
  for (uint32_t exchange = 1; exchange <= plan_->exchanges; ++exchange) {
    for (const StepKind kind : {StepKind::kReceive, StepKind::kSend}) {
      for (uint32_t index = 0; index < plan_->steps.size(); ++index) {
        const Step& step = plan_->steps[index];
        const bool is_late = messages_[index] != MessageState::kDone;
        if (step.kind == kind && step.exchange == exchange && is_late) return step.peer;
      }
    }
  }
  return TraceEvent::kNone32;
}

}  // namespace onebit
