// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction: every instruction set against the scalar oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"
#include "tests/support/dense_types.h"

namespace onebit::kernels {
namespace {

class DenseTest : public EachTarget {
 protected:
  // in_place: the rank whose buffer is the output, or -1.
  void ExpectSame(size_t ranks, size_t count, DataType type, DenseOp op, Numbers numbers, Edge edge,
                  int in_place = -1, const DenseTerms& terms = {}) {
    std::vector<Bytes> content;
    std::vector<const void*> inputs;
    for (size_t rank = 0; rank < ranks; ++rank) {
      content.push_back(RandomElements(type, numbers, count, random_));
      inputs.push_back(content.back().data());
    }
    Bytes expected(count * BytesOf(terms.is_output_f32 ? DataType::kF32 : type));
    reference::DenseReduce(inputs.data(), ranks, count, type, op, expected.data(), terms);
    for (size_t rank = 0; rank < ranks; ++rank) {
      inputs[rank] = memory_[rank]->Place(content[rank], edge);
    }
    void* output = in_place >= 0 ? const_cast<void*>(inputs[static_cast<size_t>(in_place)])
                                 : memory_.back()->Place(Bytes(expected.size(), 0xEE), edge);
    cpu::DenseReduce(inputs.data(), ranks, count, type, op, output, terms);
    EXPECT_TRUE(SameBytes(output, expected.data(), expected.size()))
        << "ranks " << ranks << " count " << count << " type " << static_cast<int>(type) << " op "
        << static_cast<int>(op);
  }

  static std::vector<std::unique_ptr<GuardedMemory>> Memory() {
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    for (int i = 0; i < 20; ++i) memory.push_back(std::make_unique<GuardedMemory>(1 << 17));
    return memory;
  }

  std::vector<std::unique_ptr<GuardedMemory>> memory_ = Memory();
  Random random_{4};
};

// The result of one element of each rank.
template <typename Element>
Element Reduced(DataType type, DenseOp op, const std::vector<Element>& elements,
                const DenseTerms& terms = {}) {
  std::vector<const void*> inputs;
  for (const Element& element : elements) inputs.push_back(&element);
  Element output;
  cpu::DenseReduce(inputs.data(), inputs.size(), 1, type, op, &output, terms);
  return output;
}

TEST_P(DenseTest, EqualsReferenceAtAllShortCounts) {
  for (const DataType type : kDenseTypes) {
    for (size_t ranks = 1; ranks <= 9; ++ranks) {
      for (const size_t count : ShortCounts()) {
        ExpectSame(ranks, count, type, kDenseOps[(count + ranks) % 4], Numbers::kOrdinary,
                   count % 3 == 0 ? Edge::kLow : Edge::kHigh);
      }
    }
  }
}

TEST_P(DenseTest, EqualsReferenceAroundTiles) {
  for (const DataType type : kDenseTypes) {
    for (const size_t ranks : {1, 2, 3, 8, 9, 19}) {
      for (const size_t count : CountsAround(16384 / BytesOf(type))) {
        for (const DenseOp op : kDenseOps) {
          ExpectSame(ranks, count, type, op, Numbers::kOrdinary, Edge::kHigh);
        }
      }
    }
  }
}

TEST_P(DenseTest, EqualsReferenceAtAllMagnitudes) {
  for (const DataType type : kDenseTypes) {
    for (const Numbers numbers : kAllNumbers) {
      // Two numbers of either sign cannot give a NaN, whose bits would be unspecified.
      ExpectSame(2, 1000, type, DenseOp::kAverage, numbers, Edge::kHigh);
      ExpectSame(1, 1000, type, DenseOp::kSum, numbers, Edge::kHigh);
      ExpectSame(3, 1000, type, DenseOp::kMax, numbers, Edge::kHigh);
      ExpectSame(3, 1000, type, DenseOp::kMin, numbers, Edge::kHigh);
    }
  }
}

TEST_P(DenseTest, OutputMayBeAnyInput) {
  for (const DataType type : kDenseTypes) {
    for (const size_t ranks : {1, 2, 9}) {
      for (size_t rank = 0; rank < ranks; ++rank) {
        ExpectSame(ranks, 5000, type, kDenseOps[rank % 4], Numbers::kOrdinary, Edge::kHigh,
                   static_cast<int>(rank));
      }
    }
  }
}

TEST_P(DenseTest, DividesByOtherNumbersThanThatOfInputs) {
  for (const DataType type : kDenseTypes) {
    for (const size_t count : {1, 77, 5000}) {
      ExpectSame(3, count, type, DenseOp::kAverage, Numbers::kOrdinary, Edge::kHigh, -1,
                 {.divisor = 7});
    }
  }
  EXPECT_EQ(Reduced<float>(DataType::kF32, DenseOp::kAverage, {6, 8}, {.divisor = 7}), 2);
  EXPECT_EQ(Reduced<int32_t>(DataType::kI32, DenseOp::kAverage, {6, 9}, {.divisor = 7}), 2);
  EXPECT_EQ(Reduced<float>(DataType::kF32, DenseOp::kSum, {6, 8}, {.divisor = 7}), 14);
}

TEST_P(DenseTest, MultipliesInputsAndWritesFp32) {
  std::vector<float> factors;
  for (int i = 0; i < 19; ++i) factors.push_back(1.0f + static_cast<float>(i) / 3);
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBf16}) {
    for (const DenseOp op : {DenseOp::kSum, DenseOp::kAverage}) {
      for (const size_t ranks : {1, 2, 5, 19}) {
        for (const size_t count : {1, 15, 64, 4096, 4099, 9000}) {
          for (const bool is_f32 : {false, true}) {
            ExpectSame(ranks, count, type, op, Numbers::kOrdinary, Edge::kHigh, -1,
                       {.divisor = 21, .factors = factors.data(), .is_output_f32 = is_f32});
          }
          ExpectSame(ranks, count, type, op, Numbers::kOrdinary, Edge::kLow, -1,
                     {.is_output_f32 = true});
        }
      }
    }
  }
  const float halves[] = {0.5f, 2};
  EXPECT_EQ(Reduced<float>(DataType::kF32, DenseOp::kAverage, {6, 8}, {.factors = halves}), 9.5f);
}

TEST_P(DenseTest, KeepsNanAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const float a[] = {nan, infinity, -infinity, infinity};
  const float b[] = {1, 1, 1, -infinity};
  const void* const inputs[] = {a, b};
  float output[4];
  cpu::DenseReduce(inputs, 2, 4, DataType::kF32, DenseOp::kAverage, output);
  EXPECT_TRUE(std::isnan(output[0]));
  EXPECT_EQ(output[1], infinity);
  EXPECT_EQ(output[2], -infinity);
  EXPECT_TRUE(std::isnan(output[3]));
}

TEST_P(DenseTest, IntegersWrapAndAveragesAreTruncated) {
  const auto i32 = [](DenseOp op, const std::vector<int32_t>& elements) {
    return Reduced(DataType::kI32, op, elements);
  };
  const auto i64 = [](DenseOp op, const std::vector<int64_t>& elements) {
    return Reduced(DataType::kI64, op, elements);
  };
  const auto u8 = [](DenseOp op, const std::vector<uint8_t>& elements) {
    return Reduced(DataType::kU8, op, elements);
  };
  EXPECT_EQ(i32(DenseOp::kSum, {INT32_MAX, 1}), INT32_MIN);
  EXPECT_EQ(i64(DenseOp::kSum, {INT64_MIN, -1}), INT64_MAX);
  EXPECT_EQ(u8(DenseOp::kSum, {200, 100}), 44);
  EXPECT_EQ(i32(DenseOp::kAverage, {-7, 0}), -3);
  EXPECT_EQ(i32(DenseOp::kAverage, {-1, -1, -3}), -1);
  EXPECT_EQ(i32(DenseOp::kAverage, {INT32_MAX, 1}), INT32_MIN / 2) << "divides the wrapped sum";
  EXPECT_EQ(i64(DenseOp::kAverage, {-(int64_t{1} << 40), 1, 0}), -366503875925);
  EXPECT_EQ(i64(DenseOp::kAverage, {INT64_MIN}), INT64_MIN);
  EXPECT_EQ(u8(DenseOp::kAverage, {200, 100}), 22);
}

TEST_P(DenseTest, MaxAndMinAreThoseOfTheType) {
  EXPECT_EQ(Reduced<int32_t>(DataType::kI32, DenseOp::kMax, {-1, INT32_MIN, 0}), 0);
  EXPECT_EQ(Reduced<int32_t>(DataType::kI32, DenseOp::kMin, {-1, INT32_MIN, 0}), INT32_MIN);
  EXPECT_EQ(Reduced<int64_t>(DataType::kI64, DenseOp::kMax, {INT64_MIN, -5}), -5);
  EXPECT_EQ(Reduced<int64_t>(DataType::kI64, DenseOp::kMin, {INT64_MAX, -5}), -5);
  EXPECT_EQ(Reduced<uint8_t>(DataType::kU8, DenseOp::kMax, {127, 128, 3}), 128);
  EXPECT_EQ(Reduced<uint8_t>(DataType::kU8, DenseOp::kMin, {127, 128, 3}), 3);
  EXPECT_EQ(Reduced<double>(DataType::kF64, DenseOp::kMax, {-1e300, -1e-300}), -1e-300);
  EXPECT_EQ(Reduced<double>(DataType::kF64, DenseOp::kMin, {1e300, HUGE_VAL, 2}), 2);
  EXPECT_EQ(Reduced<float>(DataType::kF32, DenseOp::kMax, {-HUGE_VALF, -3e38f}), -3e38f);
  EXPECT_EQ(Reduced<float>(DataType::kF32, DenseOp::kMin, {HUGE_VALF, 3}), 3);
}

TEST_P(DenseTest, NegativeZeroIsBelowPositiveZero) {
  for (const bool is_negative_first : {false, true}) {
    const std::vector<double> zeros = {is_negative_first ? -0.0 : 0.0,
                                       is_negative_first ? 0.0 : -0.0};
    EXPECT_FALSE(std::signbit(Reduced(DataType::kF64, DenseOp::kMax, zeros)));
    EXPECT_TRUE(std::signbit(Reduced(DataType::kF64, DenseOp::kMin, zeros)));
    const std::vector<uint16_t> halves = {static_cast<uint16_t>(is_negative_first ? 0x8000 : 0),
                                          static_cast<uint16_t>(is_negative_first ? 0 : 0x8000)};
    for (const DataType type : {DataType::kF16, DataType::kBf16}) {
      EXPECT_EQ(Reduced(type, DenseOp::kMax, halves), 0);
      EXPECT_EQ(Reduced(type, DenseOp::kMin, halves), 0x8000);
    }
  }
}

// With its bits, whatever its sign.
TEST_P(DenseTest, TheFirstNanIsTheMaxAndTheMin) {
  for (const DenseOp op : {DenseOp::kMax, DenseOp::kMin}) {
    EXPECT_EQ(Reduced<uint32_t>(DataType::kF32, op, {0x7F800000, 0xFFC00123, 0x7FC00456}),
              0xFFC00123);
    EXPECT_EQ(Reduced<uint32_t>(DataType::kF32, op, {0x7F800001, 0xFF800000}), 0x7F800001)
        << "signalling";
    EXPECT_EQ(Reduced<uint16_t>(DataType::kF16, op, {0xFC00, 0xFE01, 0x7C00}), 0xFE01);
    EXPECT_EQ(Reduced<uint16_t>(DataType::kBf16, op, {0x7FFF, 0xFFC1}), 0x7FFF);
    EXPECT_EQ(
        Reduced<uint64_t>(DataType::kF64, op, {0, 0xFFF0'0000'0000'0001, 0x7FFF'FFFF'FFFF'FFFF}),
        0xFFF0'0000'0000'0001);
  }
}

TEST_P(DenseTest, SumsOfFp64AreInRankOrder) {
  EXPECT_EQ(Reduced<double>(DataType::kF64, DenseOp::kSum, {1e16, 1, -1e16}), 0);
  EXPECT_EQ(Reduced<double>(DataType::kF64, DenseOp::kSum, {1e16, -1e16, 1}), 1);
  EXPECT_EQ(Reduced<double>(DataType::kF64, DenseOp::kAverage, {1, 0, 0}), 1.0 / 3);
}

ONEBIT_TEST_EACH_TARGET(DenseTest);

}  // namespace
}  // namespace onebit::kernels
