// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Worker side: every instruction set against the scalar oracle, byte for byte.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "tests/kernels/compress_case.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr std::optional<DataType> kResidualTypes[] = {std::nullopt, DataType::kF32,
                                                      DataType::kBf16};
constexpr ScaleRule kRules[] = {ScaleRule::kL2, ScaleRule::kL1};

class CompressTest : public EachTarget {
 protected:
  void ExpectSame(const CompressCase& c, Edge edge, bool is_in_place = false) {
    const CompressResult expected = runner_.Run(kReferenceCompress, c, edge, false);
    const CompressResult actual = runner_.Run(kCpuCompress, c, edge, is_in_place);
    if (!expected.is_finite) {
      EXPECT_FALSE(actual.is_finite) << c.Name();  // the outputs are unspecified
      return;
    }
    EXPECT_TRUE(actual == expected) << c.Name();
  }

  // Every combination of types, mask and rule.
  template <class Check>
  void ForAllKinds(const Check& check) {
    for (const DataType input_type : kAllTypes) {
      for (const auto residual_type : kResidualTypes) {
        for (const bool is_masked : {false, true}) {
          for (const ScaleRule rule : kRules) check(input_type, residual_type, is_masked, rule);
        }
      }
    }
  }

  CompressRunner runner_;
  Random random_{1};
};

TEST_P(CompressTest, EqualsReferenceAtAllShortCounts) {
  ForAllKinds([&](DataType input, std::optional<DataType> residual, bool is_masked,
                  ScaleRule rule) {
    for (const size_t count : ShortCounts()) {
      const size_t block = 64 * (count % 5);  // 0: one scale for all
      const CompressCase c =
          RandomCase(input, residual, is_masked, rule, count, block, Numbers::kOrdinary, random_);
      ExpectSame(c, Edge::kHigh);
      if (count % 3 == 0) ExpectSame(c, Edge::kLow);
    }
  });
}

TEST_P(CompressTest, EqualsReferenceAroundBlocks) {
  ForAllKinds([&](DataType input, std::optional<DataType> residual, bool is_masked,
                  ScaleRule rule) {
    for (const size_t block : {64, 128, 192, 256, 512, 1024, 2048, 4096, 4160, 8192, 12352}) {
      std::vector<size_t> counts = CountsAround(block);
      if (block <= 256) counts.push_back(35 * block + 9);  // short blocks form groups of 16
      for (const size_t count : counts) {
        ExpectSame(
            RandomCase(input, residual, is_masked, rule, count, block, Numbers::kOrdinary, random_),
            Edge::kHigh);
      }
    }
  });
}

TEST_P(CompressTest, EqualsReferenceWithOneScale) {
  ForAllKinds(
      [&](DataType input, std::optional<DataType> residual, bool is_masked, ScaleRule rule) {
        for (const size_t count : CountsAround(kTensorSumBlock)) {
          ExpectSame(
              RandomCase(input, residual, is_masked, rule, count, 0, Numbers::kOrdinary, random_),
              Edge::kHigh);
        }
      });
}

TEST_P(CompressTest, EqualsReferenceAtAllMagnitudes) {
  ForAllKinds([&](DataType input, std::optional<DataType> residual, bool is_masked,
                  ScaleRule rule) {
    for (const Numbers numbers : kAllNumbers) {
      for (const size_t block : {0, 64, 128, 256, 1024, 4096, 8192}) {
        for (const size_t count : {1, 63, 200, 4096, 8200}) {
          ExpectSame(RandomCase(input, residual, is_masked, rule, count, block, numbers, random_),
                     Edge::kHigh);
        }
      }
    }
  });
}

TEST_P(CompressTest, UpdatesResidualInPlace) {
  ForAllKinds([&](DataType input, std::optional<DataType> residual, bool is_masked,
                  ScaleRule rule) {
    if (!residual) return;
    for (const size_t block : {0, 64, 4096, 8192}) {
      for (const size_t count : {7, 255, 4097, 16390}) {
        ExpectSame(
            RandomCase(input, residual, is_masked, rule, count, block, Numbers::kOrdinary, random_),
            Edge::kHigh, /*is_in_place=*/true);
      }
    }
  });
}

TEST_P(CompressTest, EqualsReferenceAtAnyAlignment) {
  for (size_t offset = 0; offset < 20; ++offset) {
    const size_t count = 4096 + 3 * offset;
    CompressCase c = RandomCase(DataType::kF32, DataType::kF32, true, ScaleRule::kL2, count, 128,
                                Numbers::kOrdinary, random_);
    const CompressResult expected = runner_.Run(kReferenceCompress, c, Edge::kLow, false);
    // Elements keep their own alignment; bits and mask have none.
    std::vector<float> input(count + offset), residual_in(count + offset),
        residual_out(count + offset), scales(BlockCount(count, c.block) + offset);
    Bytes mask(BitBytes(count) + offset), bits(BitBytes(count) + offset);
    memcpy(input.data() + offset, c.input.data(), c.input.size());
    memcpy(residual_in.data() + offset, c.residual.data(), c.residual.size());
    memcpy(mask.data() + offset, c.mask->data(), c.mask->size());
    const CompressInput in = {.input = input.data() + offset,
                              .residual_in = residual_in.data() + offset,
                              .residual_out = residual_out.data() + offset,
                              .mask = mask.data() + offset,
                              .count = count};
    ASSERT_TRUE(cpu::CompressBlocks(in, c.block, scales.data() + offset, bits.data() + offset));
    EXPECT_EQ(Bytes(bits.begin() + static_cast<ptrdiff_t>(offset), bits.end()), expected.bits);
    EXPECT_TRUE(SameBytes(scales.data() + offset, expected.scales.data(),
                          expected.scales.size() * sizeof(float)));
    EXPECT_TRUE(SameBytes(residual_out.data() + offset, expected.residual.data(),
                          expected.residual.size()));
  }
}

// Calls on pieces of a tensor give the result of one call on the whole.
TEST_P(CompressTest, TensorSumContinuesOverPieces) {
  const size_t count = 5 * kTensorSumBlock + 100;
  const CompressCase c = RandomCase(DataType::kF32, DataType::kF32, false, ScaleRule::kL2, count, 0,
                                    Numbers::kOrdinary, random_);
  Bytes whole_bits(BitBytes(count)), bits(BitBytes(count));
  const CompressInput whole = {.input = c.input.data(),
                               .residual_in = c.residual.data(),
                               .residual_out = const_cast<uint8_t*>(c.residual.data()),
                               .count = count};
  TensorSum expected;
  cpu::CompressSigns(whole, whole_bits.data(), &expected);
  TensorSum sum;
  for (size_t begin = 0; begin < count; begin += 2 * kTensorSumBlock) {
    CompressInput piece = whole;
    piece.input = c.input.data() + 4 * begin;
    piece.residual_in = c.residual.data() + 4 * begin;
    piece.count = std::min(2 * kTensorSumBlock, count - begin);
    cpu::CompressSigns(piece, bits.data() + begin / 8, &sum);
  }
  EXPECT_EQ(sum.sum, expected.sum);
  EXPECT_EQ(sum.element_count, count);
  EXPECT_EQ(bits, whole_bits);
}

// The decoded value and the residual add up to the input, exactly where the subtraction is exact.
TEST_P(CompressTest, DecodedValuePlusResidualIsTheInput) {
  const std::vector<float> x = {0.0f, -0.0f, 1.5f, -1.5f, 0.5f, -0.5f, 2.0f, -2.0f};
  std::vector<float> e(x.size()), kept(x.size()), decoded(x.size());
  float scale;
  uint8_t bits;
  const CompressInput in = {.input = x.data(),
                            .residual_in = e.data(),
                            .residual_out = kept.data(),
                            .count = x.size(),
                            .rule = ScaleRule::kL1};
  ASSERT_TRUE(cpu::CompressBlocks(in, 64, &scale, &bits));
  EXPECT_EQ(scale, 1.0f);
  EXPECT_EQ(bits, 0b10101000);  // both zeros are positive
  cpu::Decode(&bits, &scale, x.size(), 64, nullptr, DataType::kF32, decoded.data());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(decoded[i] + kept[i], x[i]) << i;
}

TEST_P(CompressTest, AllMaskedGivesZeros) {
  CompressCase c = RandomCase(DataType::kF32, DataType::kF32, true, ScaleRule::kL2, 100, 64,
                              Numbers::kOrdinary, random_);
  c.mask = Bytes(BitBytes(100), 0);
  const CompressResult result = runner_.Run(kCpuCompress, c, Edge::kHigh, false);
  EXPECT_TRUE(result.is_finite);
  EXPECT_EQ(result.scales, (std::vector<float>{0, 0}));
  EXPECT_EQ(result.bits, Bytes(BitBytes(100), 0));
  EXPECT_EQ(result.residual, Bytes(400, 0));
}

TEST_P(CompressTest, ResidualsNeedNotBeKept) {
  ForAllKinds([&](DataType input, std::optional<DataType> residual, bool is_masked,
                  ScaleRule rule) {
    if (!residual) return;
    for (const size_t count : {1, 64, 500, 9000}) {
      for (const size_t block : {0, 64, 256, 4096}) {
        CompressCase c =
            RandomCase(input, residual, is_masked, rule, count, block, Numbers::kOrdinary, random_);
        CompressResult kept = runner_.Run(kReferenceCompress, c, Edge::kHigh, false);
        c.is_residual_kept = false;
        ExpectSame(c, Edge::kHigh);
        kept.residual.clear();
        EXPECT_TRUE(runner_.Run(kCpuCompress, c, Edge::kHigh, false) == kept) << c.Name();
      }
    }
  });
}

// Residuals use the rounded scale, and a scale that its type cannot hold counts as not finite.
TEST_P(CompressTest, ScalesAreRoundedToTheirType) {
  int overflows = 0;
  for (const DataType scale_type : {DataType::kF16, DataType::kBf16}) {
    ForAllKinds(
        [&](DataType input, std::optional<DataType> residual, bool is_masked, ScaleRule rule) {
          for (const Numbers numbers : kAllNumbers) {
            for (const size_t count : {1, 64, 500, 1100}) {
              CompressCase c =
                  RandomCase(input, residual, is_masked, rule, count, 64, numbers, random_);
              c.scale_type = scale_type;
              ExpectSame(c, Edge::kHigh);
              const CompressResult result = runner_.Run(kReferenceCompress, c, Edge::kHigh, false);
              c.scale_type = DataType::kF32;
              const CompressResult exact = runner_.Run(kReferenceCompress, c, Edge::kHigh, false);
              bool fits = exact.is_finite;
              for (size_t i = 0; i < exact.scales.size(); ++i) {
                const float rounded = reference::OutputScale(exact.scales[i], 1, false, scale_type);
                EXPECT_TRUE(SameBytes(&rounded, &result.scales[i], sizeof(float)));
                fits = fits && std::isfinite(rounded);
              }
              EXPECT_EQ(result.is_finite, fits);
              overflows += exact.is_finite && !fits ? 1 : 0;
            }
          }
        });
  }
  EXPECT_GT(overflows, 0) << "no case is too large for its type";
}

ONEBIT_TEST_EACH_TARGET(CompressTest);

}  // namespace
}  // namespace onebit::kernels
