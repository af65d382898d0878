// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer kernels: every instruction set against the scalar oracle, the oracle against the
// formula.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/optimizer_arrays.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

// State and input of one update.
struct AdamCase {
  AdamUpdate parameters;
  Bytes x, m, v, input;
  std::optional<Bytes> mask;
  std::vector<float> floors;
  bool has_copy = false;
};

struct AdamResult {
  Bytes x, m, v, copy;
  friend bool operator==(const AdamResult&, const AdamResult&) = default;
};

class OptimizerTest : public EachTarget {
 protected:
  AdamCase RandomAdam(size_t count, DataType input_type, Numbers numbers) {
    AdamCase c;
    c.parameters = {.input_type = input_type,
                    .count = count,
                    .lr = 1e-2f,
                    .beta1 = 0.9f,
                    .one_minus_beta1 = 1 - 0.9f,
                    .beta2 = 0.99f,
                    .one_minus_beta2 = 1 - 0.99f,
                    .eps = 1e-8f,
                    .weight_decay = random_() % 2 == 0 ? 0 : 0.01f,
                    .input_scale = random_() % 2 == 0 ? 1 : 0.3f,
                    .m_correction = random_() % 2 == 0 ? 1 : 1.5f,
                    .v_correction = random_() % 2 == 0 ? 1 : 1.25f,
                    .floor = random_() % 2 == 0 ? 0 : 0.2f};
    c.x = RandomElements(DataType::kF32, numbers, count, random_);
    c.m = RandomElements(DataType::kF32, numbers, count, random_);
    c.v = RandomVariance(numbers, count, random_);
    c.input = RandomElements(input_type, numbers, count, random_);
    if (random_() % 2 == 0) c.mask = RandomBits(count, random_);
    c.floors = RandomFloors(count, random_);
    c.has_copy = random_() % 4 != 0;
    c.parameters.copy_type = kAllTypes[random_() % 3];
    return c;
  }

  AdamResult Run(decltype(&cpu::AdamDense) step, const AdamCase& c, Edge edge) {
    AdamUpdate update = c.parameters;
    update.x = reinterpret_cast<float*>(x_.Place(c.x, edge));
    update.m = reinterpret_cast<float*>(m_.Place(c.m, edge));
    update.v = reinterpret_cast<float*>(v_.Place(c.v, edge));
    update.input = input_.Place(c.input, edge);
    if (c.mask) update.mask = mask_.Place(*c.mask, edge);
    if (!c.floors.empty()) update.block_floors = c.floors.data();
    const size_t copy_bytes = c.has_copy ? update.count * BytesOf(update.copy_type) : 0;
    uint8_t* copy = copy_.Place(Bytes(copy_bytes, 0xEE), edge);
    if (c.has_copy) update.copy = copy;
    step(update);
    return {x_.Read(), m_.Read(), v_.Read(), copy_.Read(update.copy_type)};
  }

  void ExpectSameAdam(const AdamCase& c, Edge edge) {
    EXPECT_TRUE(Run(cpu::AdamDense, c, edge) == Run(reference::AdamDense, c, edge))
        << "dense, count " << c.parameters.count;
    EXPECT_TRUE(Run(cpu::AdamFrozen, c, edge) == Run(reference::AdamFrozen, c, edge))
        << "frozen, count " << c.parameters.count;
  }

  GuardedArray x_, m_, v_, input_, mask_, copy_;
  Random random_{9};
};

TEST_P(OptimizerTest, AdamEqualsReferenceAtAllShortCounts) {
  for (const DataType type : kAllTypes) {
    for (const size_t count : ShortCounts()) {
      for (const Edge edge : {Edge::kLow, Edge::kHigh}) {
        ExpectSameAdam(RandomAdam(count, type, Numbers::kOrdinary), edge);
      }
    }
  }
}

TEST_P(OptimizerTest, AdamEqualsReferenceAroundTiles) {
  for (const DataType type : kAllTypes) {
    for (const size_t count : CountsAround(4096)) {
      for (int repetition = 0; repetition < 8; ++repetition) {
        ExpectSameAdam(RandomAdam(count, type, Numbers::kOrdinary), Edge::kHigh);
      }
    }
  }
}

TEST_P(OptimizerTest, AdamEqualsReferenceAtSmallMagnitudes) {
  for (const Numbers numbers :
       {Numbers::kZeros, Numbers::kSparse, Numbers::kDenormal, Numbers::kTiny}) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      ExpectSameAdam(RandomAdam(1000, DataType::kF32, numbers), Edge::kHigh);
    }
  }
}

TEST_P(OptimizerTest, MaskedInputIsIgnored) {
  float x[] = {1, 2}, m[] = {3, 4}, v[] = {5, 6};
  const float input[] = {std::numeric_limits<float>::quiet_NaN(), 1};
  const uint8_t mask = 0b10;
  for (const auto& step :
       {cpu::AdamDense, cpu::AdamFrozen, reference::AdamDense, reference::AdamFrozen}) {
    x[0] = 1;
    m[0] = 3;
    step({.x = x,
          .m = m,
          .v = v,
          .input = input,
          .count = 2,
          .lr = 0.5f,
          .beta1 = 0.5f,
          .one_minus_beta1 = 0.5f,
          .beta2 = 0.5f,
          .one_minus_beta2 = 0.5f,
          .weight_decay = 0.5f,
          .mask = &mask});
    EXPECT_EQ(x[0], 0.75f);  // 1 - 0.5 * (0 + 0.5 * 1)
    EXPECT_EQ(m[0], 0.0f);
    EXPECT_EQ(v[0], 5.0f);
  }
}

TEST_P(OptimizerTest, AdamFollowsTheFormula) {
  for (const auto& step : {cpu::AdamDense, reference::AdamDense}) {
    float x = 1, m = 2, v = 3, copy = 0;
    const float input = 8;
    step({.x = &x,
          .m = &m,
          .v = &v,
          .input = &input,
          .count = 1,
          .lr = 0.5f,
          .beta1 = 0.5f,
          .one_minus_beta1 = 0.5f,
          .beta2 = 0.5f,
          .one_minus_beta2 = 0.5f,
          .eps = 1,
          .weight_decay = 0.25f,
          .input_scale = 0.25f,
          .m_correction = 2,
          .v_correction = 2,
          .copy = &copy});
    EXPECT_EQ(m, 2.0f);  // g = 2
    EXPECT_EQ(v, 3.5f);  // 1.5 + (0.5 * 2) * 2
    EXPECT_EQ(x, 1 - 0.5f * (4.0f / (std::sqrt(7.0f) + 1) + 0.25f));
    EXPECT_EQ(copy, x);
  }
}

TEST_P(OptimizerTest, FloorRaisesTheDenominator) {
  for (const auto& step : {cpu::AdamFrozen, reference::AdamFrozen}) {
    float x[] = {0, 0}, m[2], v[] = {1, 16};
    const float input[] = {8, 8};
    step({.x = x, .m = m, .v = v, .input = input, .count = 2, .lr = 1, .floor = 2});
    EXPECT_EQ(x[0], -4.0f);
    EXPECT_EQ(x[1], -2.0f);
    EXPECT_EQ(m[0], 8.0f);
  }
}

TEST_P(OptimizerTest, MomentumEqualsReference) {
  for (const DataType type : kAllTypes) {
    for (const size_t count : OptimizerCounts()) {
      const Bytes g = RandomElements(type, Numbers::kOrdinary, count, random_);
      const auto* m = reinterpret_cast<const float*>(m_.Place(
          RandomElements(DataType::kF32, Numbers::kOrdinary, count, random_), Edge::kHigh));
      const uint8_t* mask =
          count % 2 == 0 ? nullptr : mask_.Place(RandomBits(count, random_), Edge::kHigh);
      const uint8_t* placed = input_.Place(g, Edge::kHigh);
      // In place where the types allow it.
      auto* actual = type == DataType::kF32 ? reinterpret_cast<float*>(const_cast<uint8_t*>(placed))
                                            : x_.Place(std::vector<float>(count, -1), Edge::kHigh);
      std::vector<float> expected(count);
      reference::LocalMomentum(m, g.data(), type, 0.3f, 0.9f, 0.1f, mask, count, expected.data());
      cpu::LocalMomentum(m, placed, type, 0.3f, 0.9f, 0.1f, mask, count, actual);
      EXPECT_TRUE(SameBytes(actual, expected.data(), 4 * count)) << count;
    }
  }
}

TEST_P(OptimizerTest, SumsEqualReference) {
  for (const DataType type : kAllTypes) {
    for (const Numbers numbers : kAllNumbers) {
      for (const size_t count : {0, 1, 15, 127, 128, 129, 4095, 4096, 4097, 12345}) {
        const Bytes content = RandomElements(type, numbers, count, random_);
        const uint8_t* values = input_.Place(content, Edge::kHigh);
        EXPECT_EQ(cpu::SumOfSquares(values, type, count),
                  reference::SumOfSquares(values, type, count));
        EXPECT_EQ(cpu::SumOfMagnitudes(values, type, count),
                  reference::SumOfMagnitudes(values, type, count));
      }
    }
  }
}

TEST_P(OptimizerTest, SumsOfIntegersAreExact) {
  std::vector<float> values(5000);
  std::iota(values.begin(), values.end(), -2500.0f);
  EXPECT_EQ(cpu::SumOfMagnitudes(values.data(), DataType::kF32, values.size()), 6250000.0);
  EXPECT_EQ(reference::SumOfMagnitudes(values.data(), DataType::kF32, values.size()), 6250000.0);
  EXPECT_EQ(cpu::SumOfSquares(values.data() + 2495, DataType::kF32, 10), 85.0);  // -5 to 4
}

TEST_P(OptimizerTest, SumsOfNonfiniteAreNonfinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t i = 0; i < 200; ++i) {
      std::vector<float> values(200, 1.0f);
      values[i] = bad;
      EXPECT_FALSE(std::isfinite(cpu::SumOfSquares(values.data(), DataType::kF32, 200)));
      EXPECT_FALSE(std::isfinite(cpu::SumOfMagnitudes(values.data(), DataType::kF32, 200)));
      EXPECT_FALSE(std::isfinite(reference::SumOfSquares(values.data(), DataType::kF32, 200)));
    }
  }
}

TEST_P(OptimizerTest, MaskOfNonzeroEqualsReference) {
  for (const size_t count : OptimizerCounts()) {
    Bytes content = RandomElements(
        DataType::kF32, count % 2 == 0 ? Numbers::kSparse : Numbers::kDenormal, count, random_);
    auto* v = reinterpret_cast<float*>(input_.Place(content, Edge::kHigh));
    if (count > 3) v[3] = std::numeric_limits<float>::quiet_NaN();
    Bytes expected(BitBytes(count), 0xEE);
    const size_t expected_count = reference::MaskOfNonzero(v, count, expected.data());
    uint8_t* actual = mask_.Place(Bytes(expected.size(), 0xEE), Edge::kHigh);
    EXPECT_EQ(cpu::MaskOfNonzero(v, count, actual), expected_count);
    EXPECT_EQ(Bytes(actual, actual + expected.size()), expected) << count;
  }
}

ONEBIT_TEST_EACH_TARGET(OptimizerTest);

}  // namespace
}  // namespace onebit::kernels
