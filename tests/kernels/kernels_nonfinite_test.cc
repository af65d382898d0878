// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NaN, infinity and numbers close to them are found at every position, and nowhere else.
#include <gtest/gtest.h>

#include <cfloat>
#include <limits>

#include "kernels/kernels.h"
#include "tests/kernels/compress_case.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class NonfiniteTest : public EachTarget {
 protected:
  void SetElement(Bytes& array, DataType type, size_t i, float value) {
    if (type == DataType::kF32) {
      reinterpret_cast<float*>(array.data())[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(array.data())[i] =
          type == DataType::kF16 ? reference::Fp16OfFloat(value) : reference::Bf16OfFloat(value);
    }
  }

  CompressRunner runner_;
  Random random_{7};
};

TEST_P(NonfiniteTest, WorkerFindsItAtEveryPosition) {
  for (const size_t block : {0, 64, 4096}) {
    for (const DataType type : kAllTypes) {
      for (const ScaleRule rule : {ScaleRule::kL2, ScaleRule::kL1}) {
        const size_t count = 150;
        const CompressCase good = RandomCase(type, DataType::kF32, false, rule, count, block,
                                             Numbers::kOrdinary, random_);
        EXPECT_TRUE(runner_.Run(kCpuCompress, good, Edge::kHigh, false).is_finite);
        for (size_t i = 0; i < count; ++i) {
          for (const float value : {kNan, -kNan, kInfinity, -kInfinity}) {
            CompressCase bad = good;
            SetElement(bad.input, type, i, value);
            EXPECT_FALSE(runner_.Run(kCpuCompress, bad, Edge::kHigh, false).is_finite) << i;
            EXPECT_FALSE(runner_.Run(kReferenceCompress, bad, Edge::kHigh, false).is_finite) << i;
            bad = good;
            SetElement(bad.residual, DataType::kF32, i, value);
            EXPECT_FALSE(runner_.Run(kCpuCompress, bad, Edge::kHigh, false).is_finite) << i;
          }
        }
      }
    }
  }
}

TEST_P(NonfiniteTest, WorkerFindsItInLaterTilesOfABlock) {
  for (const size_t i : {0, 4095, 4096, 12287}) {
    CompressCase c = RandomCase(DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 12288, 12288,
                                Numbers::kOrdinary, random_);
    SetElement(c.input, DataType::kF32, i, kNan);
    EXPECT_FALSE(runner_.Run(kCpuCompress, c, Edge::kHigh, false).is_finite) << i;
  }
}

TEST_P(NonfiniteTest, WorkerFindsSumThatOverflows) {
  CompressCase c = RandomCase(DataType::kF32, DataType::kF32, false, ScaleRule::kL2, 100, 64,
                              Numbers::kOrdinary, random_);
  SetElement(c.input, DataType::kF32, 99, FLT_MAX);
  SetElement(c.residual, DataType::kF32, 99, FLT_MAX);
  EXPECT_FALSE(runner_.Run(kCpuCompress, c, Edge::kHigh, false).is_finite);
}

TEST_P(NonfiniteTest, MaskedElementsAreIgnored) {
  for (const size_t block : {0, 64, 4096}) {
    const size_t count = 150;
    CompressCase c = RandomCase(DataType::kF32, DataType::kF32, true, ScaleRule::kL2, count, block,
                                Numbers::kOrdinary, random_);
    for (size_t i = 0; i < count; ++i) {
      if (((*c.mask)[i / 8] >> (i % 8) & 1) == 0) {
        SetElement(i % 2 == 0 ? c.input : c.residual, DataType::kF32, i,
                   i % 3 == 0 ? kNan : kInfinity);
      }
    }
    const CompressResult expected = runner_.Run(kReferenceCompress, c, Edge::kHigh, false);
    EXPECT_TRUE(expected.is_finite);
    EXPECT_TRUE(runner_.Run(kCpuCompress, c, Edge::kHigh, false) == expected);
  }
}

// The largest number alone in a block: its square overflows, and so does the sum of two magnitudes,
// but no result does.
TEST_P(NonfiniteTest, LargestNumbersAreCompressed) {
  for (const ScaleRule rule : {ScaleRule::kL2, ScaleRule::kL1}) {
    const std::vector<float> x(100, -FLT_MAX);
    std::vector<float> e(100, 0.0f);
    float scales[2];
    uint8_t bits[13];
    const CompressInput in = {.input = x.data(),
                              .residual_in = e.data(),
                              .residual_out = e.data(),
                              .count = x.size(),
                              .rule = rule};
    ASSERT_TRUE(cpu::CompressBlocks(in, 64, scales, bits));
    EXPECT_EQ(scales[0], FLT_MAX);
    EXPECT_EQ(scales[1], FLT_MAX);
    EXPECT_EQ(e, std::vector<float>(100, 0.0f));
  }
}

// A residual near the largest number would become infinite in bf16.
TEST_P(NonfiniteTest, Bf16ResidualsStayFinite) {
  for (const ScaleRule rule : {ScaleRule::kL2, ScaleRule::kL1}) {
    for (const size_t block : {0, 4096}) {
      for (const float large : {0x1.fffffep126f, 0x1p127f, FLT_MAX}) {
        CompressCase c = RandomCase(DataType::kF32, DataType::kBf16, false, rule, 1000, block,
                                    Numbers::kZeros, random_);
        SetElement(c.input, DataType::kF32, 500, large);
        const CompressResult result = runner_.Run(kCpuCompress, c, Edge::kHigh, false);
        EXPECT_EQ(result.is_finite, large < 0x1p127f);
        EXPECT_EQ(result.is_finite,
                  runner_.Run(kReferenceCompress, c, Edge::kHigh, false).is_finite);
        if (!result.is_finite) continue;
        for (size_t i = 0; i < 1000; ++i) {
          const auto kept = reinterpret_cast<const uint16_t*>(result.residual.data())[i];
          EXPECT_TRUE(std::isfinite(reference::FloatOfBf16(kept)));
        }
      }
    }
  }
}

TEST_P(NonfiniteTest, ServerFindsItInScalesAndResiduals) {
  const size_t count = 70;
  const uint8_t bits[2][9] = {};
  const uint8_t* const packets[] = {bits[0], bits[1]};
  for (const float value : {1.0f, kNan, kInfinity}) {
    for (size_t i = 0; i < count; ++i) {
      const float scales[2][2] = {{1, 1}, {1, i % 2 == 0 && i >= 64 ? value : 1}};
      const float* const both[] = {scales[0], scales[1]};
      std::vector<float> residual(count, 0.5f);
      if (i % 2 == 1 || i < 64) residual[i] = value;
      const ReduceInput in = {.bits = packets,
                              .scales = both,
                              .ranks = 2,
                              .residual_in = residual.data(),
                              .residual_out = residual.data(),
                              .count = count};
      float sent[2];
      uint8_t sent_bits[9];
      EXPECT_EQ(cpu::ReduceBlocks(in, 64, sent, sent_bits), value == 1.0f) << i;
    }
  }
}

ONEBIT_TEST_EACH_TARGET(NonfiniteTest);

}  // namespace
}  // namespace onebit::kernels
