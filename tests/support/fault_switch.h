// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decides which of the messages that the ranks of this process send the fault strikes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tests/support/fault.h"

namespace onebit::testing {

// Armed while no call is running; queried by the threads of ranks. Counts only messages of the
// fault's rank, so one thread counts.
class FaultSwitch {
 public:
  using Clock = std::chrono::steady_clock;

  // Counts messages from now on, and strikes once.
  void Arm(const Fault& fault) {
    fault_ = fault;
    count_ = 0;
    struck_at_ = Clock::time_point{};
    struck_peer_ = -1;
  }
  const Fault& fault() const { return fault_; }

  // True if the fault could strike this message of `rank`. Call Count after it was sent.
  bool Counts(int rank, const std::byte* header, size_t payload_bytes) const {
    return fault_.kind != Fault::Kind::kNone && rank == fault_.rank &&
           (payload_bytes != 0 || !NeedsPayload(fault_.kind)) &&
           (fault_.exchange == 0 || static_cast<int>(header[kExchangeOffset]) == fault_.exchange);
  }
  bool is_due() const { return count_ == fault_.message; }
  void Count() { ++count_; }

  void Strike(int peer) {
    if (has_struck()) return;
    struck_at_ = Clock::now();
    struck_peer_.store(peer, std::memory_order_release);
  }
  bool has_struck() const { return struck_peer() >= 0; }
  // The receiver of the struck message; -1 if none was struck yet.
  int struck_peer() const { return struck_peer_.load(std::memory_order_acquire); }
  Clock::time_point struck_at() const { return struck_at_; }

  // The rank that no longer sends or receives; -1 if there is none.
  int silent_rank() const { return has_struck() && CutsOff(fault_.kind) ? fault_.rank : -1; }

 private:
  static constexpr size_t kExchangeOffset = 5;  // FORMAT.md, section 3

  Fault fault_;
  std::atomic<uint64_t> count_{0};  // messages of fault_.rank since Arm
  Clock::time_point struck_at_{};   // written before struck_peer_
  std::atomic<int> struck_peer_{-1};
};

}  // namespace onebit::testing
