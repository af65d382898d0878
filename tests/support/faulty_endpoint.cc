// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace onebit::testing {
namespace {

constexpr size_t kVersionOffset = 4;  // FORMAT.md, section 3
// A loss that is to be reported wakes nobody, so endpoints that may have to report one poll often.
constexpr uint64_t kLookMs = 2;

// Prints when the fault struck, by the monotonic clock, for whoever watches the process.
void SayStruck() {
  const std::chrono::duration<double> now = FaultSwitch::Clock::now().time_since_epoch();
  dprintf(STDOUT_FILENO, "struck %.6f\n", now.count());
}

void FlipBit(std::byte* bytes, size_t bit) { bytes[bit / 8] ^= std::byte{1} << (bit % 8); }

}  // namespace

onebitResult_t FaultyEndpoint::Send(int peer, const void* header, size_t header_bytes,
                                    const void* payload, size_t payload_bytes,
                                    MessageRequest* request) {
  if (is_silent()) {
    *request = LostRequest();
    return onebitSuccess;
  }
  if (peer == faults_.silent_rank() && faults_.fault().kind == Fault::Kind::kPeerError) {
    TellLoss();
    return onebitPeerLost;
  }
  Message message{{}, header_bytes, payload, payload_bytes};
  std::memcpy(message.header.data(), header, header_bytes);
  if (!faults_.Counts(info_.rank, message.header.data(), payload_bytes)) {
    return Forward(peer, message, request);
  }
  const bool is_struck = faults_.is_due();
  if (is_struck && faults_.fault().is_after) {
    const onebitResult_t result = Forward(peer, message, request);
    if (result != onebitSuccess) return result;
    faults_.Count();
    return Strike(peer, message, request);
  }
  const onebitResult_t result =
      is_struck ? Strike(peer, message, request) : Forward(peer, message, request);
  if (result == onebitSuccess) faults_.Count();
  if (result == onebitSuccess && is_struck) faults_.Strike(peer);
  return result;
}

onebitResult_t FaultyEndpoint::Forward(int peer, const Message& message, MessageRequest* request) {
  const onebitResult_t result =
      functions_.isend(inner, peer, message.header.data(), message.header_bytes, message.payload,
                       message.payload_bytes, request);
  if (result == onebitSuccess && held_ && held_->peer == peer) {
    held_->is_overtaken = true;
    static_cast<void>(ReleaseHeld());  // if there is no room, Progress tries again
  }
  return result;
}

onebitResult_t FaultyEndpoint::Strike(int peer, Message message, MessageRequest* request) {
  const Fault& fault = faults_.fault();
  switch (fault.kind) {
    case Fault::Kind::kNone:
      break;
    case Fault::Kind::kFlipHeader:
      FlipBit(message.header.data(), fault.bit % (message.header_bytes * 8));
      break;
    case Fault::Kind::kSetVersion:
      message.header[kVersionOffset] = static_cast<std::byte>(fault.bit);
      break;
    case Fault::Kind::kFlipPayload:
      CopyPayload(&message);
      FlipBit(copy_.data(), fault.bit % (message.payload_bytes * 8));
      break;
    case Fault::Kind::kCutPayload:
      --message.payload_bytes;
      break;
    case Fault::Kind::kDuplicate:
      return SendTwice(peer, message, request);
    case Fault::Kind::kReorder:
      CopyPayload(&message);
      held_ = Held{.peer = peer, .message = message};
      *request = LostRequest();
      return onebitSuccess;
    case Fault::Kind::kDrop:
    case Fault::Kind::kDisconnect:
    case Fault::Kind::kPeerError:
      *request = LostRequest();
      return onebitSuccess;
    case Fault::Kind::kDelay:
      if (delayed_until_ == FaultSwitch::Clock::time_point{}) {
        delayed_until_ = FaultSwitch::Clock::now() + std::chrono::milliseconds(fault.delay_ms);
      }
      if (FaultSwitch::Clock::now() < delayed_until_) return onebitInProgress;
      break;
    case Fault::Kind::kRefuse:
      faults_.Strike(peer);
      return onebitSystemError;
    case Fault::Kind::kKill:
      SayStruck();
      return static_cast<onebitResult_t>(std::raise(SIGKILL));
    case Fault::Kind::kStop:
      faults_.Strike(peer);
      SayStruck();
      std::raise(SIGSTOP);
      if (fault.is_after) return onebitSuccess;
      break;
  }
  return Forward(peer, message, request);
}

void FaultyEndpoint::CopyPayload(Message* message) {
  if (message->payload_bytes == 0) return;
  const auto* payload = static_cast<const std::byte*>(message->payload);
  copy_.assign(payload, payload + message->payload_bytes);
  message->payload = copy_.data();
}

onebitResult_t FaultyEndpoint::SendTwice(int peer, const Message& message,
                                         MessageRequest* request) {
  if (!has_sent_duplicate_) {
    Message copy = message;
    CopyPayload(&copy);
    MessageRequest unwatched = nullptr;  // ends when the endpoint is closed
    const onebitResult_t result = Forward(peer, copy, &unwatched);
    if (result != onebitSuccess) return result;
    has_sent_duplicate_ = true;
  }
  return Forward(peer, message, request);
}

onebitResult_t FaultyEndpoint::ReleaseHeld() {
  const Message& message = held_->message;
  MessageRequest unwatched = nullptr;  // ends when the endpoint is closed
  const onebitResult_t result =
      functions_.isend(inner, held_->peer, message.header.data(), message.header_bytes,
                       message.payload, message.payload_bytes, &unwatched);
  if (result == onebitSuccess) held_.reset();
  return result;
}

onebitResult_t FaultyEndpoint::Receive(int peer, void* header, size_t capacity,
                                       MessageRequest* request) {
  const onebitResult_t result = functions_.irecv(inner, peer, header, capacity, request);
  if (result == onebitSuccess) posted_[static_cast<size_t>(peer)] = *request;
  return result;
}

onebitResult_t FaultyEndpoint::Test(MessageRequest request, TransferState* state) {
  if (request == LostRequest()) {
    *state = TransferState::kDone;
    return onebitSuccess;
  }
  if (is_silent()) {
    *state = TransferState::kPending;
    return onebitSuccess;
  }
  const onebitResult_t result = functions_.test(inner, request, state);
  if (result != onebitSuccess || *state != TransferState::kPending) {
    std::replace(posted_.begin(), posted_.end(), request, MessageRequest{});
  }
  return result;
}

onebitResult_t FaultyEndpoint::Cancel(MessageRequest request) {
  if (request == LostRequest()) return onebitSuccess;
  std::replace(posted_.begin(), posted_.end(), request, MessageRequest{});
  return functions_.cancel(inner, request);
}

onebitResult_t FaultyEndpoint::Progress() {
  if (held_ && held_->is_overtaken) static_cast<void>(ReleaseHeld());
  const int lost = faults_.silent_rank();
  if (lost >= 0 && lost != info_.rank && faults_.fault().kind == Fault::Kind::kPeerError &&
      posted_[static_cast<size_t>(lost)] != nullptr) {
    TellLoss();
  }
  return functions_.progress(inner);
}

onebitResult_t FaultyEndpoint::Wait(uint64_t timeout_ms) {
  const bool may_be_told = faults_.fault().kind == Fault::Kind::kPeerError;
  return functions_.wait(inner, may_be_told ? std::min(timeout_ms, kLookMs) : timeout_ms);
}

void FaultyEndpoint::TellLoss() {
  if (std::exchange(has_told_loss_, true)) return;
  info_.peer_error(info_.peer_error_argument, faults_.silent_rank(), onebitPeerLost,
                   "its connection was cut");
}

}  // namespace onebit::testing
