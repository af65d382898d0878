// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Connects the ends of a communicator with each other; abort and close.
#include <algorithm>
#include <new>
#include <span>
#include <string>

#include "base/format.h"
#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

// A send needs a request until the receiver has released its slot. Receives need one from the post
// to the test that says done; twice the window leaves room for callers that test late.
constexpr size_t kRequestsPerPeer = 3 * kWindow;
// Time for sent frames to leave, spent only while some have not left and their receiver still
// exists.
constexpr uint64_t kCloseNs = 100 * kNsPerMs;
constexpr uint64_t kAbortNs = 2 * kNsPerMs;

}  // namespace

MessageChannel::MessageChannel(ChannelContext* context, const ChannelInfo& info)
    : context_(context),
      state_(*context, info),
      controls_(&state_),
      sends_(&state_, &controls_),
      receives_(&state_, &controls_) {
  context_->AddChannel();
}

onebitResult_t MessageChannel::Open(const ChannelInfo& info) {
  return state_.frames.Open(
      {.structSize = sizeof(onebitTransportCommInfo),
       .rank = state_.rank,
       .nranks = state_.nranks,
       .commId = state_.comm_id,
       .placeFrame = [](void* channel, int peer, const void* header, size_t header_bytes,
                        size_t payload_bytes) -> void* {
         return static_cast<MessageChannel*>(channel)->receives_.Place(peer, header, header_bytes,
                                                                       payload_bytes);
       },
       .onFrame =
           [](void* channel, int peer, const void* header, size_t header_bytes, const void* payload,
              size_t payload_bytes) {
             static_cast<MessageChannel*>(channel)->OnFrame(peer, header, header_bytes, payload,
                                                            payload_bytes);
           },
       .onLoss =
           [](void* channel) { static_cast<MessageChannel*>(channel)->state_.has_losses = true; },
       .onEvent = [](void* channel) { ++static_cast<MessageChannel*>(channel)->state_.events; },
       .argument = this,
       .key = info.key,
       .address = info.address,
       .addressBytes = info.address_bytes,
       .server = info.server,
       .serverBytes = info.server_bytes,
       .isOneHost = info.is_one_host ? 1 : 0,
       .group = info.group});
}

onebitResult_t MessageChannel::Connect(std::span<const std::vector<std::byte>> addresses,
                                       uint64_t timeout_ms) {
  if (has_begun_) return onebitInvalidUsage;
  if (addresses.size() != static_cast<size_t>(state_.nranks)) return onebitInvalidArgument;
  const AddressList list(addresses);
  return WithLock([&] {  // The lock is released even if memory runs out.
    has_begun_ = true;
    const uint64_t start = Now();
    timeout_ms = std::min<uint64_t>(timeout_ms, 86'400'000);
    onebitResult_t result =
        state_.frames.Connect(list.pointers.data(), list.sizes.data(), timeout_ms);
    if (result == onebitInvalidArgument) has_begun_ = false;  // The addresses lead nowhere.
    if (result == onebitSuccess) result = MakePeers();
    if (result == onebitSuccess) result = ExchangeHellos(start, timeout_ms * kNsPerMs);
    is_connected_ = result == onebitSuccess;
    return result;
  });
}

// Allocates everything that messages need.
onebitResult_t MessageChannel::MakePeers() {
  try {
    return AllocatePeers();
  } catch (const std::bad_alloc&) {
    state_.context.Warn("rank {}: no memory for messages, {} bytes for each of {} ranks",
                        state_.rank, kWindow * (state_.slot_bytes() + sizeof(Slot)), state_.nranks);
    return onebitOutOfMemory;
  }
}

onebitResult_t MessageChannel::AllocatePeers() {
  const auto ranks = static_cast<size_t>(state_.nranks);
  const size_t slot_bytes = state_.slot_bytes();
  state_.requests = std::make_unique<MessageRequests>(kRequestsPerPeer * ranks);
  state_.peers = std::vector<Peer>(ranks);
  uint32_t ranks_here = 0;
  for (int rank = 0; rank < state_.nranks; ++rank) {
    Peer& to = state_.peer(rank);
    to.link = state_.frames.link(rank);
    if (to.link == nullptr || to.link->pieceBytes == 0) return onebitInternalError;
    if (to.link->isHere != 0) ++ranks_here;
    to.slots = std::make_unique<Slot[]>(kWindow);
    to.slot_memory = std::make_unique_for_overwrite<std::byte[]>(kWindow * slot_bytes);
    for (size_t i = kWindow; i-- > 0;) to.GivePartBack(to.slot_memory.get() + i * slot_bytes);
  }
  spin_ns_ = state_.context.spin_ns(ranks_here);
  return onebitSuccess;
}

// Greets every rank that the transport has not reached yet and waits for their greetings. A rank is
// done when it has heard from all and its own greetings have left: from then on nobody depends on
// it.
onebitResult_t MessageChannel::ExchangeHellos(uint64_t start, uint64_t timeout_ns) {
  std::vector<int> ungreeted;
  for (int rank = 0; rank < state_.nranks; ++rank) {
    if (state_.peer(rank).link->isReached == 0) ungreeted.push_back(rank);
  }
  while (true) {
    std::erase_if(ungreeted, [this](int rank) {
      // The greeting carries a payload so that it takes the path of long messages: see Send.
      const WireHeader wire = controls_.Wire(state_.peer(rank), WireType::kHello, 0, 0);
      constexpr std::byte kPayload[256] = {};
      return state_.frames.Send(rank, onebitFrameLong, std::as_bytes(std::span(&wire, 1)),
                                kPayload) != onebitInProgress;
    });
    Drive();
    if (lock_.is_aborted()) return onebitAborted;
    std::string missing;
    for (int rank = 0; rank < state_.nranks; ++rank) {
      const Peer& other = state_.peer(rank);
      const onebitTransportLink& link = *other.link;
      if (other.is_lost()) {
        state_.context.Warn("rank {} cannot reach rank {} on {} by {}: {}", state_.rank, rank,
                            link.host, link.route, other.loss());
        return onebitPeerLost;
      }
      const bool is_greeted = std::ranges::find(ungreeted, rank) == ungreeted.end();
      if (link.isReached != 0 || (is_greeted && other.has_hello && other.in_flight() == 0)) {
        continue;
      }
      AppendFormat(&missing, " {} (on {}, by {})", rank, link.host, link.route);
    }
    if (missing.empty()) return onebitSuccess;
    const uint64_t elapsed = Now() - start;
    if (elapsed >= timeout_ns) {
      state_.context.Warn("rank {} waited {} ms in vain for rank{}", state_.rank,
                          timeout_ns / kNsPerMs, missing);
      return onebitTimeout;
    }
    state_.frames.Sleep(std::min(timeout_ns - elapsed, 10 * kNsPerMs));
  }
}

MessageChannel::~MessageChannel() {
  if (is_connected_) {
    lock_.Lock();
    const bool is_orderly = !lock_.is_aborted();
    SayBye(!is_orderly);
    DriveUntilSent(is_orderly ? kCloseNs : kAbortNs);
  }
  state_.is_discarding = true;
  state_.frames.Close();
  context_->RemoveChannel();
}

onebitResult_t MessageChannel::Abort() {
  if (!lock_.MarkAborted()) return onebitSuccess;
  state_.frames.Abort();
  // If the lock is taken, its holder finds the mark when it releases; otherwise the owner finds it
  // in its next call.
  if (!state_.frames.CanSendFromAnyThread() || !lock_.TryLock()) return onebitSuccess;
  ReleaseLock();
  return onebitSuccess;
}

// Called with the lock held. Tells the peers of an abort that has come meanwhile. There may be none
// to tell: before connect, or after one that failed, the frame transport may be unable to send and
// has nothing to drive.
void MessageChannel::ReleaseLock() {
  if (lock_.Unlock()) return;
  if (!has_said_bye_) {
    SayBye(true);
    if (is_connected_) DriveUntilSent(kAbortNs);
  }
  lock_.UnlockAborted();
}

// From here on no memory of the user is read or written. Payloads that were not handed over are
// lost, and so are waiting control messages, which concern requests that end now.
void MessageChannel::SayBye(bool is_abort) {
  if (!has_said_bye_ && is_connected_) {
    for (int rank = 0; rank < state_.nranks; ++rank) {
      if (rank == state_.rank) continue;
      state_.peer(rank).controls.Clear();
      controls_.Send(rank, WireType::kBye, state_.peer(rank).sent, is_abort ? 1 : 0);
    }
  }
  has_said_bye_ = true;
  state_.is_discarding = true;
  for (Peer& other : state_.peers) {
    receives_.StopPlacing(other, other.placed);
    for (const Request* offer : other.offers) {
      if (offer != nullptr && state_.IsPulled(other, offer->payload_bytes)) {
        state_.frames.Recall(state_.RankOf(other), offer->number);
      }
    }
  }
  state_.frames.CancelAllreduce();
}

bool MessageChannel::HasPendingSends() const {
  for (const Peer& to : state_.peers) {
    if (!to.is_gone() && (to.in_flight() != 0 || !to.controls.is_empty())) return true;
  }
  return false;
}

void MessageChannel::DriveUntilSent(uint64_t timeout_ns) {
  const uint64_t start = Now();
  bool is_flushing = false;
  while (Now() - start < timeout_ns) {
    const bool has_moved = state_.frames.Progress();
    controls_.FlushAll();
    if (!HasPendingSends()) {
      if (is_flushing && state_.frames.is_flushed()) return;
      if (!is_flushing) state_.frames.StartFlush();
      is_flushing = true;
    }
    if (!has_moved) state_.frames.Sleep(timeout_ns < kCloseNs ? 20'000 : 100'000);
  }
}

}  // namespace onebit::channel
