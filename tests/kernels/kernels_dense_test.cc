// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction: every instruction set against the scalar oracle.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "kernels/kernels.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

class DenseTest : public EachTarget {
 protected:
  // in_place: the rank whose buffer is the output, or -1.
  void ExpectSame(size_t ranks, size_t count, DataType type, bool is_average, Numbers numbers,
                  Edge edge, int in_place = -1) {
    std::vector<Bytes> content;
    std::vector<const void*> inputs;
    for (size_t rank = 0; rank < ranks; ++rank) {
      content.push_back(RandomElements(type, numbers, count, random_));
      inputs.push_back(content.back().data());
    }
    Bytes expected(count * BytesOf(type));
    reference::DenseReduce(inputs.data(), ranks, count, type, is_average, expected.data());
    for (size_t rank = 0; rank < ranks; ++rank) {
      inputs[rank] = memory_[rank]->Place(content[rank], edge);
    }
    void* output = in_place >= 0 ? const_cast<void*>(inputs[static_cast<size_t>(in_place)])
                                 : memory_.back()->Place(Bytes(expected.size(), 0xEE), edge);
    cpu::DenseReduce(inputs.data(), ranks, count, type, is_average, output);
    EXPECT_TRUE(SameBytes(output, expected.data(), expected.size()))
        << "ranks " << ranks << " count " << count << " type " << static_cast<int>(type)
        << (is_average ? " average" : " sum");
  }

  static std::vector<std::unique_ptr<GuardedMemory>> Memory() {
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    for (int i = 0; i < 20; ++i) memory.push_back(std::make_unique<GuardedMemory>(1 << 17));
    return memory;
  }

  std::vector<std::unique_ptr<GuardedMemory>> memory_ = Memory();
  Random random_{4};
};

TEST_P(DenseTest, EqualsReferenceAtAllShortCounts) {
  for (const DataType type : kAllTypes) {
    for (size_t ranks = 1; ranks <= 9; ++ranks) {
      for (const size_t count : ShortCounts()) {
        ExpectSame(ranks, count, type, count % 2 == 0, Numbers::kOrdinary,
                   count % 3 == 0 ? Edge::kLow : Edge::kHigh);
      }
    }
  }
}

TEST_P(DenseTest, EqualsReferenceAroundTiles) {
  for (const DataType type : kAllTypes) {
    for (const size_t ranks : {1, 2, 3, 8, 9, 19}) {
      for (const size_t count : CountsAround(4096)) {
        for (const bool is_average : {false, true}) {
          ExpectSame(ranks, count, type, is_average, Numbers::kOrdinary, Edge::kHigh);
        }
      }
    }
  }
}

TEST_P(DenseTest, EqualsReferenceAtAllMagnitudes) {
  for (const DataType type : kAllTypes) {
    for (const Numbers numbers : kAllNumbers) {
      // Two numbers of either sign cannot give a NaN, whose bits would be unspecified.
      ExpectSame(2, 1000, type, true, numbers, Edge::kHigh);
      ExpectSame(1, 1000, type, false, numbers, Edge::kHigh);
    }
  }
}

TEST_P(DenseTest, OutputMayBeAnyInput) {
  for (const DataType type : kAllTypes) {
    for (const size_t ranks : {1, 2, 9}) {
      for (size_t rank = 0; rank < ranks; ++rank) {
        ExpectSame(ranks, 5000, type, true, Numbers::kOrdinary, Edge::kHigh,
                   static_cast<int>(rank));
      }
    }
  }
}

TEST_P(DenseTest, KeepsNanAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const float a[] = {nan, infinity, -infinity, infinity};
  const float b[] = {1, 1, 1, -infinity};
  const void* const inputs[] = {a, b};
  float output[4];
  cpu::DenseReduce(inputs, 2, 4, DataType::kF32, true, output);
  EXPECT_TRUE(std::isnan(output[0]));
  EXPECT_EQ(output[1], infinity);
  EXPECT_EQ(output[2], -infinity);
  EXPECT_TRUE(std::isnan(output[3]));
}

ONEBIT_TEST_EACH_TARGET(DenseTest);

}  // namespace
}  // namespace onebit::kernels
