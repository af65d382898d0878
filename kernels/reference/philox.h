// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., SC 2011): random numbers as a function of a counter, so that no
// order of computation, number of threads or kind of processor changes them.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/low_bit.h"

namespace onebit::kernels::reference {

inline constexpr uint32_t kPhiloxMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr uint32_t kPhiloxKeyStep[2] = {0x9E3779B9u, 0xBB67AE85u};
inline constexpr int kPhiloxRounds = 10;

struct PhiloxWords {
  uint32_t word[4];
};

ONEBIT_HOST_DEVICE inline PhiloxWords Philox(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  // Copies, because code for a device has no global arrays of the host.
  constexpr uint32_t kStep0 = kPhiloxKeyStep[0], kStep1 = kPhiloxKeyStep[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier[0]} * counter.word[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier[1]} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += kStep0;
    key1 += kStep1;
  }
  return counter;
}

// The keys of a stream of draws.
ONEBIT_HOST_DEVICE inline uint32_t LowKey(const Draws& draws) {
  return static_cast<uint32_t>(draws.seed);
}
ONEBIT_HOST_DEVICE inline uint32_t HighKey(const Draws& draws) {
  return static_cast<uint32_t>(draws.seed >> 32) ^ draws.stream;
}

// The 32 random bits of element `index` of a piece.
ONEBIT_HOST_DEVICE inline uint32_t DrawOf(const Draws& draws, uint64_t index) {
  const uint64_t i = draws.first + index;
  const PhiloxWords counter = {
      {static_cast<uint32_t>(i >> 2), static_cast<uint32_t>(i >> 34), draws.epoch, draws.tensor}};
  return Philox(counter, LowKey(draws), HighKey(draws)).word[i % 4];
}

// A multiple of 2^-24 in [0, 1).
ONEBIT_HOST_DEVICE inline float UniformOf(uint32_t random) {
  return static_cast<float>(random >> 8) * 0x1p-24f;
}

}  // namespace onebit::kernels::reference
