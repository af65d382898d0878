// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Copies of every instruction set, at all alignments and lengths around a cache line.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/copy.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

class CopyTest : public EachTarget {
 protected:
  Random random_{7};
};

TEST_P(CopyTest, CopiesEveryByteAndWritesNoOther) {
  GuardedMemory sources(1 << 12);
  GuardedMemory targets(1 << 12);
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 1024}) {
    const Bytes data = RandomBits(8 * bytes, random_);
    const uint8_t* const from = sources.Place(data, Edge::kHigh);
    for (size_t before = 0; before < 64; ++before) {
      uint8_t* const low = targets.Place(before + bytes + 64, Edge::kLow);
      std::fill_n(low, before + bytes + 64, 0xA5);
      cpu::CopyPastCaches(low + before, from, bytes);
      EXPECT_TRUE(std::equal(data.begin(), data.end(), low + before)) << bytes << " " << before;
      const auto is_untouched = [](uint8_t byte) { return byte == 0xA5; };
      EXPECT_TRUE(std::all_of(low, low + before, is_untouched)) << bytes << " " << before;
      EXPECT_TRUE(std::all_of(low + before + bytes, low + before + bytes + 64, is_untouched))
          << bytes << " " << before;
    }
    uint8_t* const high = targets.Place(bytes, Edge::kHigh);
    cpu::CopyPastCaches(high, from, bytes);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), high)) << bytes;
  }
}

ONEBIT_TEST_EACH_TARGET(CopyTest);

}  // namespace
}  // namespace onebit::kernels
