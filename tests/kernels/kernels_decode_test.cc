// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decoding: every instruction set against the scalar oracle, byte for byte.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/kernels.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/packet_case.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

class DecodeTest : public EachTarget {
 protected:
  void ExpectSameAverage(const PacketCase& c, bool is_sum, bool is_masked, Edge edge) {
    ReduceInput in = packets_.Place(c, edge);
    in.is_sum = is_sum;
    if (is_masked) in.mask = mask_.Place(RandomBits(c.count, random_), edge);
    std::vector<float> expected(c.count);
    reference::DecodeAverage(in, c.block, expected.data());
    auto* actual = output_.Place(std::vector<float>(c.count, -1), edge);
    cpu::DecodeAverage(in, c.block, actual);
    EXPECT_TRUE(SameBytes(actual, expected.data(), c.count * sizeof(float)))
        << "ranks " << c.ranks << " count " << c.count << " block " << c.block
        << (is_sum ? " sum" : "") << (is_masked ? " masked" : "");
  }

  void ExpectSameDecode(size_t count, size_t block, DataType type, bool is_masked, Edge edge,
                        Numbers numbers = Numbers::kOrdinary) {
    PacketCase c = RandomPackets(1, count, block, numbers, random_);
    for (float& scale : c.scales[0]) scale = reference::OutputScale(scale, 1, false, type);
    const ReduceInput in = packets_.Place(c, edge);
    const uint8_t* mask = is_masked ? mask_.Place(RandomBits(count, random_), edge) : nullptr;
    Bytes expected(count * BytesOf(type));
    reference::Decode(in.bits[0], in.scales[0], count, block, mask, type, expected.data());
    auto* actual = output_.Place(Bytes(expected.size(), 0xEE), edge);
    cpu::Decode(in.bits[0], in.scales[0], count, block, mask, type, actual);
    EXPECT_TRUE(SameBytes(actual, expected.data(), expected.size()))
        << "count " << count << " block " << block << " type " << static_cast<int>(type)
        << (is_masked ? " masked" : "");
  }

  PlacedPackets packets_{19};
  GuardedMemory mask_{size_t{1} << 18}, output_{size_t{1} << 18};
  Random random_{3};
};

TEST_P(DecodeTest, AverageEqualsReferenceAtAllShortCounts) {
  for (size_t ranks = 1; ranks <= 9; ++ranks) {
    for (const size_t count : ShortCounts()) {
      const PacketCase c =
          RandomPackets(ranks, count, 64 * (count % 4), Numbers::kOrdinary, random_);
      ExpectSameAverage(c, count % 3 == 0, count % 5 == 0, Edge::kHigh);
      ExpectSameAverage(c, false, false, Edge::kLow);
    }
  }
}

TEST_P(DecodeTest, AverageEqualsReferenceAroundBlocks) {
  for (const size_t ranks : {1, 3, 8, 9, 16, 19}) {
    for (const size_t block : {64, 192, 4096, 8192}) {
      for (const size_t count : CountsAround(block)) {
        for (const bool is_sum : {false, true}) {
          for (const bool is_masked : {false, true}) {
            ExpectSameAverage(RandomPackets(ranks, count, block, Numbers::kOrdinary, random_),
                              is_sum, is_masked, Edge::kHigh);
          }
        }
      }
    }
  }
}

TEST_P(DecodeTest, AverageEqualsReferenceAtAllMagnitudes) {
  for (const Numbers numbers : kAllNumbers) {
    for (size_t ranks = 1; ranks <= 9; ++ranks) {
      ExpectSameAverage(RandomPackets(ranks, 500, 64, numbers, random_), false, false, Edge::kHigh);
      ExpectSameAverage(RandomPackets(ranks, 500, 0, numbers, random_), true, true, Edge::kHigh);
    }
  }
}

TEST_P(DecodeTest, EqualsReferenceAtAllShortCounts) {
  for (const DataType type : kAllTypes) {
    for (const bool is_masked : {false, true}) {
      for (const size_t count : ShortCounts()) {
        ExpectSameDecode(count, 64 * (count % 4), type, is_masked, Edge::kHigh);
        ExpectSameDecode(count, 64 * (count % 3), type, is_masked, Edge::kLow);
      }
    }
  }
}

TEST_P(DecodeTest, EqualsReferenceAroundBlocks) {
  for (const DataType type : kAllTypes) {
    for (const bool is_masked : {false, true}) {
      for (const size_t block : {64, 192, 4096, 8192}) {
        for (const size_t count : CountsAround(block)) {
          ExpectSameDecode(count, block, type, is_masked, Edge::kHigh);
        }
      }
    }
  }
}

TEST_P(DecodeTest, EqualsReferenceAtAllMagnitudes) {
  for (const DataType type : kAllTypes) {
    for (const Numbers numbers : kAllNumbers) {
      ExpectSameDecode(500, 64, type, false, Edge::kHigh, numbers);
    }
  }
}

TEST_P(DecodeTest, ZeroScaleKeepsTheSignOfZero) {
  const uint8_t bits = 0b10;
  const float scale = 0;
  float output[2];
  cpu::Decode(&bits, &scale, 2, 0, nullptr, DataType::kF32, output);
  EXPECT_FALSE(std::signbit(output[0]));
  EXPECT_TRUE(std::signbit(output[1]));
}

ONEBIT_TEST_EACH_TARGET(DecodeTest);

}  // namespace
}  // namespace onebit::kernels
