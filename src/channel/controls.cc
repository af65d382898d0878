// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "channel/controls.h"

#include <span>

namespace onebit::channel {
namespace {

constexpr uint64_t kFewSlots = kWindow / 4;
constexpr uint64_t kFewBytes = kMostPendingBytes / 8;

}  // namespace

WireHeader Controls::Wire(Peer& to, WireType type, uint64_t number, uint64_t value) const {
  return {.magic = kWireMagic,
          .type = type,
          .header_bytes = 0,
          .source = static_cast<uint32_t>(state_.rank),
          .unused = 0,
          .comm_id = state_.comm_id,
          .number = number,
          .value = value,
          .released = to.released};
}

// Sends a control message now, or as soon as the frame transport accepts it.
void Controls::Send(int rank, WireType type, uint64_t number, uint64_t value) {
  Peer& to = state_.peer(rank);
  if (to.is_gone() || state_.is_discarding) return;
  if (!to.controls.Push({type, number, value})) {
    to.broke_protocol = true;
    state_.has_losses = true;
    return;
  }
  Flush(rank);
}

void Controls::Flush(int rank) {
  Peer& to = state_.peer(rank);
  while (!to.controls.is_empty()) {
    const Control& control = to.controls.front();
    const WireHeader wire = Wire(to, control.type, control.number, control.value);
    const onebitResult_t result =
        state_.frames.Send(rank, onebitFrameShort, std::as_bytes(std::span(&wire, 1)), {});
    if (result == onebitInProgress) {
      if (!to.is_flushing) flushing_.push_back(rank);
      to.is_flushing = true;
      return;
    }
    if (result != onebitSuccess) {
      to.controls.Clear();
      return;
    }
    to.MarkAnnounced(wire.released);
    to.controls.Pop();
  }
}

void Controls::FlushAll() {
  for (size_t i = flushing_.size(); i-- > 0;) {
    const int rank = flushing_[i];
    Flush(rank);
    if (!state_.peer(rank).controls.is_empty()) continue;
    state_.peer(rank).is_flushing = false;
    flushing_[i] = flushing_.back();
    flushing_.pop_back();
    if (state_.lacks_room) ++state_.events;
  }
}

// Tells a rank now and then how many slots are free again. Every message carries that number, so a
// rank with enough free slots needs no separate message. A rank whose sends wait to complete can
// wait, too, as long as this one has something else to do.
void Controls::AnnounceReleased(int rank) {
  Peer& to = state_.peer(rank);
  const uint64_t unannounced = to.released - to.announced;
  if (unannounced >= kFewSlots || (unannounced != 0 && to.unannounced_bytes >= kFewBytes)) {
    if (to.controls.is_empty()) Send(rank, WireType::kRelease, 0);
  } else if (NeedsAnnouncement(to)) {
    has_unannounced_ = true;
  }
}

// True if a rank waits for a release that was not announced, or has few free slots.
bool Controls::NeedsAnnouncement(const Peer& to) const {
  return to.released != to.announced &&
         (to.awaited > to.announced || to.announced + kWindow < to.seen + kFewSlots);
}

void Controls::AnnounceReleasedNow(int rank) {
  const Peer& to = state_.peer(rank);
  if (NeedsAnnouncement(to) && to.controls.is_empty()) Send(rank, WireType::kRelease, 0);
}

// Called when there is nothing else to do.
void Controls::AnnounceReleasedWhenIdle() {
  if (!has_unannounced_) return;
  has_unannounced_ = false;
  for (int rank = 0; rank < state_.nranks; ++rank) AnnounceReleasedNow(rank);
}

}  // namespace onebit::channel
