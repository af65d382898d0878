// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on their way from the thread that makes them to the one that tells the other ranks of them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "codec/message_header.h"

namespace onebit {

// One thread puts calls in, another one takes them out; neither waits. Once there was no room for a
// call, none is told of any more, because all of them are told or those from some on are not.
class ToldCalls {
 public:
  static constexpr uint32_t kRoom = 4096;  // calls that take 25 microseconds each, for 0.1 s

  // False for the first call that nobody is told of.
  [[nodiscard]] bool Put(const CallDescriptor& call) {
    if (is_overrun_) return true;
    const uint32_t number = put_.load(std::memory_order_relaxed);
    is_overrun_ = number - taken_.load(std::memory_order_acquire) == kRoom;
    if (is_overrun_) return false;
    calls_[number % kRoom] = call;
    put_.store(number + 1, std::memory_order_release);
    return true;
  }
  std::optional<CallDescriptor> Take() {
    const uint32_t number = taken_.load(std::memory_order_relaxed);
    if (number == put_.load(std::memory_order_acquire)) return std::nullopt;
    const CallDescriptor call = calls_[number % kRoom];
    taken_.store(number + 1, std::memory_order_release);
    return call;
  }

 private:
  std::array<CallDescriptor, kRoom> calls_;
  bool is_overrun_ = false;  // the putting thread's
  std::atomic<uint32_t> put_{0};
  std::atomic<uint32_t> taken_{0};
};

}  // namespace onebit
