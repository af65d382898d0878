// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Control messages, and peers that end.
#include <cstdio>
#include <span>

#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

constexpr uint64_t kFewSlots = kWindow / 4;
constexpr uint64_t kFewBytes = kMostPendingBytes / 8;

}  // namespace

WireHeader MessageChannel::Wire(Peer& to, WireType type, uint64_t number, uint64_t value) const {
  return {.magic = kWireMagic,
          .type = type,
          .header_bytes = 0,
          .source = static_cast<uint32_t>(rank_),
          .unused = 0,
          .comm_id = comm_id_,
          .number = number,
          .value = value,
          .released = to.released};
}

// Sends a control message now, or as soon as the frame transport accepts it.
void MessageChannel::SendControl(int rank, WireType type, uint64_t number, uint64_t value) {
  Peer& to = peer(rank);
  if (to.is_gone() || is_discarding_) return;
  if (!to.controls.Push({type, number, value})) {
    to.broke_protocol = true;
    has_losses_ = true;
    return;
  }
  FlushControls(rank);
}

void MessageChannel::FlushControls(int rank) {
  Peer& to = peer(rank);
  while (!to.controls.is_empty()) {
    const Control& control = to.controls.front();
    const WireHeader wire = Wire(to, control.type, control.number, control.value);
    const Sent sent = frames_.Send(rank, onebitFrameShort, std::as_bytes(std::span(&wire, 1)), {});
    if (sent == Sent::kNoRoom) {
      if (!to.is_flushing) flushing_.push_back(rank);
      to.is_flushing = true;
      return;
    }
    if (sent == Sent::kFailed) {
      to.controls.Clear();
      return;
    }
    to.MarkAnnounced(wire.released);
    to.controls.Pop();
  }
}

void MessageChannel::FlushAllControls() {
  for (size_t i = flushing_.size(); i-- > 0;) {
    const int rank = flushing_[i];
    FlushControls(rank);
    if (!peer(rank).controls.is_empty()) continue;
    peer(rank).is_flushing = false;
    flushing_[i] = flushing_.back();
    flushing_.pop_back();
    if (lacks_room_) ++events_;
  }
}

// Tells a rank now and then how many slots are free again. Every message carries that number, so a
// rank with enough free slots needs no separate message. A rank whose sends wait to complete can
// wait, too, as long as this one has something else to do.
void MessageChannel::AnnounceReleased(int rank) {
  Peer& to = peer(rank);
  const uint64_t unannounced = to.released - to.announced;
  if (unannounced >= kFewSlots || (unannounced != 0 && to.unannounced_bytes >= kFewBytes)) {
    if (to.controls.is_empty()) SendControl(rank, WireType::kRelease, 0);
  } else if (NeedsAnnouncement(to)) {
    has_unannounced_ = true;
  }
}

// True if a rank waits for a release that was not announced, or has few free slots.
bool MessageChannel::NeedsAnnouncement(const Peer& to) const {
  return to.released != to.announced &&
         (to.awaited > to.announced || to.announced + kWindow < to.seen + kFewSlots);
}

void MessageChannel::AnnounceReleasedNow(int rank) {
  const Peer& to = peer(rank);
  if (NeedsAnnouncement(to) && to.controls.is_empty()) SendControl(rank, WireType::kRelease, 0);
}

// Called when there is nothing else to do.
void MessageChannel::AnnounceReleasedWhenIdle() {
  if (!has_unannounced_) return;
  has_unannounced_ = false;
  for (int rank = 0; rank < nranks_; ++rank) AnnounceReleasedNow(rank);
}

// Fails requests that need a peer that has ended or was lost.
void MessageChannel::HandleDepartures() {
  if (!has_losses_) return;
  has_losses_ = false;
  for (int rank = 0; rank < nranks_; ++rank) {
    Peer& gone = peer(rank);
    if (!gone.is_gone()) continue;
    gone.controls.Clear();
    bool was_needed = false;
    for (Request* offer : gone.offers) {
      if (offer == nullptr) continue;
      EndOffer(offer, RequestState::kFailed);
      was_needed = true;
    }
    for (uint64_t number = gone.released; number < gone.received; ++number) {
      Slot& slot = gone.slot(number);
      if (slot.state != SlotState::kTaken || slot.taker->state != RequestState::kReceiving) {
        continue;
      }
      EndReceive(slot.taker, RequestState::kFailed);
      was_needed = true;
    }
    if (was_needed) ReportDeparture(rank);
    MatchPosted(rank);
    ++events_;  // A caller that waits for capacity learns of the loss from isend.
  }
}

void MessageChannel::ReportDeparture(int rank) {
  Peer& gone = peer(rank);
  if (gone.is_reported || peer_error_ == nullptr) return;
  gone.is_reported = true;
  char text[192];
  if (gone.has_bye) {
    std::snprintf(text, sizeof text, "rank %d has %s its endpoint", rank,
                  gone.was_aborted ? "aborted" : "closed");
  } else {
    std::snprintf(text, sizeof text, "rank %d, reached by %s, is lost: %s", rank, gone.link->route,
                  gone.loss());
  }
  peer_error_(peer_error_argument_, rank, gone.has_bye ? onebitRemoteError : onebitPeerLost, text);
}

}  // namespace onebit::channel
