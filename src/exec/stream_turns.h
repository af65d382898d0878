// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A CUDA stream and a thread of the host take turns at a batch: the stream computes a phase, the
// host moves the messages of the next exchange, and so on. Each tells the other through a word in
// pinned memory, so the host makes no CUDA call.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/cuda/params.h"
#include "plan/stream_order.h"

namespace onebit {

// In pinned memory, on cache lines of their own. Numbers only grow, modulo 2^32.
struct TurnWords {
  alignas(64) uint32_t reached = 0;   // written by streams: the newest turn they have taken
  alignas(64) uint32_t released = 0;  // written by the host: the newest turn it has taken
};

// The outcome of one call. In pinned memory, followed by the checksums of StreamTurns::held.
struct OutcomeWords {
  alignas(64) uint32_t faults = 0;    // written by kernels (kernels::cuda::Faults)
  uint64_t age = 0;                   // copied from AgeOnDevice when the call begins
  alignas(64) uint32_t decision = 0;  // written by the host (FaultWords)
};

// The number `at`, or a later one, was reached.
inline bool HasReached(const uint32_t& word, uint32_t at) {
  const uint32_t now = std::atomic_ref(const_cast<uint32_t&>(word)).load(std::memory_order_acquire);
  return static_cast<int32_t>(now - at) >= 0;
}

// The turns of one batch.
struct StreamTurns {
  const StreamOrder* order = nullptr;
  TurnWords* words = nullptr;
  uint32_t first_reached = 0;   // what the stream writes after phase 0
  uint32_t first_released = 0;  // what phase 1 waits for
  std::byte* calls = nullptr;   // OutcomeWords of each call
  size_t call_stride = 0;

  OutcomeWords& call(size_t index) const {
    return *reinterpret_cast<OutcomeWords*>(calls + index * call_stride);
  }
  // Checksums of this rank's estimates of all chunks, by chunk.
  kernels::Checksum* held(size_t index) const {
    return reinterpret_cast<kernels::Checksum*>(&call(index) + 1);
  }
  bool HasComputed(uint32_t phase) const {
    return HasReached(words->reached, first_reached + phase);
  }
  // Lets the stream compute `phase`, 1 or later.
  void Release(uint32_t phase) const {
    std::atomic_ref(words->released).store(first_released + phase - 1, std::memory_order_release);
  }
};

}  // namespace onebit
