// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Progress and waiting.
#include <poll.h>

#include <algorithm>
#include <ctime>

#include "plugins/transport_ucx/endpoint.h"

namespace onebit::ucx {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint64_t kLongestWaitMs = 86'400'000;  // a day; a wait may end early
constexpr int kRoundsOfProgress = 16;
// UCX has no event for room in the memory that a peer shares. A sender that waits for it looks this
// often.
constexpr uint64_t kLookAgainNs = 50'000;
constexpr int kTriesToArm = 3;

}  // namespace

onebitResult_t Endpoint::Progress() {
  return WithTurn([&] {
    if (!is_connected_) return onebitInvalidUsage;
    Drive();
    return onebitSuccess;
  });
}

// Moves everything on. False if there was nothing to do.
bool Endpoint::Drive() {
  bool has_moved = false;
  int rounds = 0;
  while (rounds < kRoundsOfProgress && worker_->Progress()) ++rounds;
  has_moved |= rounds != 0;
  SettleDepartures();
  if (!flushing_.empty()) FlushAllControls();
  if (!streaming_.empty()) has_moved |= PumpStreams();
  if (has_losses_) SettleDepartures();
  if (!has_moved) TellReleasedWhenIdle();
  return has_moved;
}

onebitResult_t Endpoint::Wait(uint64_t timeout_ms) {
  return WithTurn([&] {
    if (!is_connected_) return onebitInvalidUsage;
    const uint64_t timeout_ns = std::min(timeout_ms, kLongestWaitMs) * kNsPerMs;
    const uint64_t start = news_ == heard_ ? Now() : 0;
    uint64_t idle_since = start;
    while (news_ == heard_ && !turn_.is_aborted()) {
      const bool has_moved = Drive();
      if (news_ != heard_) break;
      const uint64_t now = Now();
      if (now - start >= timeout_ns) break;
      if (has_moved) {
        idle_since = now;
      } else if (now - idle_since >= spin_ns_) {
        Sleep(timeout_ns - (now - start));
      }
    }
    heard_ = news_;
    return turn_.is_aborted() ? onebitAborted : onebitSuccess;
  });
}

// Sleeps until UCX has something to do, an abort, or the time is over.
void Endpoint::Sleep(uint64_t timeout_ns) {
  pollfd fds[] = {{.fd = abort_fd_, .events = POLLIN, .revents = 0},
                  {.fd = worker_->wake_fd(), .events = POLLIN, .revents = 0}};
  nfds_t count = 2;
  // What came since the last progress makes Arm say no, so that nothing is slept through.
  // Over shared memory the first no may be about an event that is over, so it is asked again.
  bool is_armed = worker_->Arm();
  for (int tries = 0; !is_armed && tries < kTriesToArm; ++tries) {
    if (worker_->Progress()) return;
    is_armed = worker_->Arm();
  }
  if (!is_armed) {
    timeout_ns = std::min(timeout_ns, kLookAgainNs);
    count = 1;
  }
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / kNsPerSecond),
                         .tv_nsec = static_cast<long>(timeout_ns % kNsPerSecond)};
  ppoll(fds, count, &timeout, nullptr);
}

}  // namespace onebit::ucx
