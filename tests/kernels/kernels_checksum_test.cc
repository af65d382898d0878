// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checksums of every instruction set, compared with the scalar oracle and with words summed by
// hand.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/kernels.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

class ChecksumTest : public EachTarget {
 protected:
  Random random_{5};
};

TEST_P(ChecksumTest, EqualsReferenceAtAllLengths) {
  GuardedMemory memory(1 << 14);
  for (size_t bytes = 0; bytes <= 1200; ++bytes) {
    for (const Edge edge : {Edge::kLow, Edge::kHigh}) {
      const uint8_t* data = memory.Place(RandomBits(8 * bytes, random_), edge);
      EXPECT_EQ(cpu::ChecksumOf(data, bytes), reference::ChecksumOf(data, bytes)) << bytes;
    }
  }
}

TEST_P(ChecksumTest, EqualsReferenceOnLargeInput) {
  const Bytes data = RandomBits(8 * 1000003, random_);
  EXPECT_EQ(cpu::ChecksumOf(data.data() + 1, data.size() - 1),
            reference::ChecksumOf(data.data() + 1, data.size() - 1));
}

TEST_P(ChecksumTest, WeighsWordsByTheirPosition) {
  const uint8_t data[] = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0x80, 5};
  const Checksum expected = {.sum = 1 + 0x200 + 0x80000000u + 5,
                             .weighted = 1 + 2 * 0x200 + 3 * 0x80000000u + 4 * 5};
  EXPECT_EQ(cpu::ChecksumOf(data, sizeof(data)), expected);
  EXPECT_EQ(reference::ChecksumOf(data, sizeof(data)), expected);
}

TEST_P(ChecksumTest, SeesEverySingleBitAndEverySwapOfWords) {
  Bytes data = RandomBits(8 * 400, random_);
  const Checksum original = cpu::ChecksumOf(data.data(), data.size());
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_FALSE(cpu::ChecksumOf(data.data(), data.size()) == original) << bit;
    data[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  for (size_t word = 1; word < data.size() / 4; ++word) {
    Bytes swapped = data;
    std::swap_ranges(swapped.begin(), swapped.begin() + 4,
                     swapped.begin() + static_cast<ptrdiff_t>(4 * word));
    if (swapped != data) {
      EXPECT_FALSE(cpu::ChecksumOf(swapped.data(), swapped.size()) == original) << word;
    }
  }
}

ONEBIT_TEST_EACH_TARGET(ChecksumTest);

}  // namespace
}  // namespace onebit::kernels
