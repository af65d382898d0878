// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Progress and waiting.
#include <algorithm>

#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

constexpr uint64_t kLongestWaitMs = 86'400'000;  // a day; a wait may end early
constexpr int kRoundsOfProgress = 16;

}  // namespace

onebitResult_t MessageChannel::Progress() {
  return WithLock([&] {
    if (!is_connected_) return onebitInvalidUsage;
    Drive();
    return onebitSuccess;
  });
}

// Notes that a test returned pending because the frame transport has not sent `frame` yet.
void MessageChannel::Watch(Peer& to, uint64_t frame) {
  to.watched_frame = std::min(to.watched_frame, frame);
  has_watches_ = true;
}

void MessageChannel::CheckWatchedFrames() {
  if (!has_watches_) return;
  has_watches_ = false;
  for (Peer& to : peers_) {
    if (to.watched_frame == Peer::kNoFrame) continue;
    if (to.link->sent >= to.watched_frame || to.is_gone()) {
      to.watched_frame = Peer::kNoFrame;
      ++events_;
    } else {
      has_watches_ = true;
    }
  }
}

// Makes progress on everything. False if there was nothing to do.
bool MessageChannel::Drive() {
  bool has_moved = false;
  int rounds = 0;
  while (rounds < kRoundsOfProgress && frames_.Progress()) ++rounds;
  has_moved |= rounds != 0;
  HandleDepartures();
  if (!flushing_.empty()) FlushAllControls();
  if (!streaming_.empty()) has_moved |= PumpStreams();
  HandleDepartures();
  CheckWatchedFrames();
  if (!has_moved) AnnounceReleasedWhenIdle();
  return has_moved;
}

onebitResult_t MessageChannel::Wait(uint64_t timeout_ms) {
  return WithLock([&] {
    if (!is_connected_) return onebitInvalidUsage;
    const uint64_t timeout_ns = std::min(timeout_ms, kLongestWaitMs) * kNsPerMs;
    const uint64_t start = events_ == seen_events_ ? Now() : 0;
    uint64_t idle_since = start;
    while (events_ == seen_events_ && !lock_.is_aborted()) {
      const bool has_moved = Drive();
      if (events_ != seen_events_) break;
      const uint64_t now = Now();
      if (now - start >= timeout_ns) break;
      if (has_moved) {
        idle_since = now;
      } else if (now - idle_since >= spin_ns_) {
        frames_.Sleep(timeout_ns - (now - start));
      }
    }
    seen_events_ = events_;
    return lock_.is_aborted() ? onebitAborted : onebitSuccess;
  });
}

}  // namespace onebit::channel
