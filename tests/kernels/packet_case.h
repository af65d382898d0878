// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packets of several ranks on guarded memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {

// Packets of `ranks` ranks for one piece; block == 0: one scale per packet.
struct PacketCase {
  size_t ranks = 1;
  size_t count = 0;
  size_t block = 4096;
  std::vector<Bytes> bits;
  std::vector<std::vector<float>> scales;
};

inline PacketCase RandomPackets(size_t ranks, size_t count, size_t block, Numbers numbers,
                                Random& random) {
  PacketCase c = {.ranks = ranks, .count = count, .block = block};
  for (size_t rank = 0; rank < ranks; ++rank) {
    c.bits.push_back(RandomSigns(count, random));
    c.scales.emplace_back(block == 0 ? 1 : BlockCount(count, block));
    for (float& scale : c.scales.back()) scale = std::abs(RandomF32(numbers, random));
  }
  return c;
}

// Holds a case at an edge of guarded memory and points a ReduceInput to it.
class PlacedPackets {
 public:
  explicit PlacedPackets(size_t max_ranks) {
    for (size_t i = 0; i < 2 * max_ranks; ++i) {
      memory_.push_back(std::make_unique<GuardedMemory>(kCapacity));
    }
  }

  ReduceInput Place(const PacketCase& c, Edge edge) {
    bits_.clear();
    scales_.clear();
    for (size_t rank = 0; rank < c.ranks; ++rank) {
      bits_.push_back(memory_[2 * rank]->Place(c.bits[rank], edge));
      scales_.push_back(memory_[2 * rank + 1]->Place(c.scales[rank], edge));
    }
    return {.bits = bits_.data(), .scales = scales_.data(), .ranks = c.ranks, .count = c.count};
  }

 private:
  static constexpr size_t kCapacity = size_t{1} << 13;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
  std::vector<const uint8_t*> bits_;
  std::vector<const float*> scales_;
};

}  // namespace onebit::kernels
