// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// LAMB kernels: every instruction set against the scalar oracle, the oracle against the formula.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/lamb.h"
#include "kernels/optimizer.h"
#include "kernels/reference/elements.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/optimizer_arrays.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using LambKernel = decltype(&cpu::LambDense);

// Layer and input of one update.
struct LambCase {
  LambUpdate parameters;
  Bytes x, m, v, v_fresh, input;
  std::optional<Bytes> mask;
};

struct LambResult {
  Bytes x, m, v, v_fresh;
  std::array<double, 4> norms;  // never negative: -1 stands for NaN
  friend bool operator==(const LambResult&, const LambResult&) = default;
};

class LambTest : public EachTarget {
 protected:
  LambCase RandomLamb(size_t count, DataType input_type, Numbers numbers) {
    LambCase c;
    c.parameters = {.input_type = input_type,
                    .count = count,
                    .beta1 = 0.9f,
                    .one_minus_beta1 = 1 - 0.9f,
                    .beta2 = 0.99f,
                    .one_minus_beta2 = 1 - 0.99f,
                    .eps = random_() % 2 == 0 ? 0 : 1e-6f,
                    .weight_decay = random_() % 2 == 0 ? 0 : 0.01f,
                    .input_scale = random_() % 2 == 0 ? 1 : 0.3f,
                    .m_correction = random_() % 2 == 0 ? 1 : 1.5f,
                    .v_correction = random_() % 2 == 0 ? 1 : 1.25f,
                    .v_fresh_correction = random_() % 2 == 0 ? 1 : 1.125f,
                    .floor = random_() % 2 == 0 ? 0 : 0.2f};
    c.x = RandomElements(DataType::kF32, numbers, count, random_);
    c.m = RandomElements(DataType::kF32, numbers, count, random_);
    c.v = RandomVariance(numbers, count, random_);
    c.v_fresh = RandomVariance(numbers, count, random_);
    c.input = RandomElements(input_type, numbers, count, random_);
    if (random_() % 2 == 0) c.mask = RandomBits(count, random_);
    return c;
  }

  LambUpdate Place(const LambCase& c, Edge edge) {
    LambUpdate update = c.parameters;
    update.x = reinterpret_cast<float*>(x_.Place(c.x, edge));
    update.m = reinterpret_cast<float*>(m_.Place(c.m, edge));
    update.v = reinterpret_cast<float*>(v_.Place(c.v, edge));
    update.v_fresh = reinterpret_cast<float*>(v_fresh_.Place(c.v_fresh, edge));
    update.input = input_.Place(c.input, edge);
    if (c.mask) update.mask = mask_.Place(*c.mask, edge);
    return update;
  }

  LambResult Run(LambKernel step, const LambCase& c, Edge edge) {
    const LambNorms norms = step(Place(c, edge));
    LambResult result = {
        .x = x_.Read(),
        .m = m_.Read(),
        .v = v_.Read(),
        .v_fresh = v_fresh_.Read(),
        .norms = {norms.x_squared, norms.update_squared, norms.decayed_squared, norms.max_ratio}};
    for (double& norm : result.norms) norm = std::isnan(norm) ? -1 : norm;
    return result;
  }

  void ExpectSame(const LambCase& c, Edge edge) {
    EXPECT_TRUE(Run(cpu::LambDense, c, edge) == Run(reference::LambDense, c, edge))
        << "dense, count " << c.parameters.count;
    EXPECT_TRUE(Run(cpu::LambFrozen, c, edge) == Run(reference::LambFrozen, c, edge))
        << "frozen, count " << c.parameters.count;
  }

  GuardedArray x_, m_, v_, v_fresh_, input_, mask_;
  Random random_{10};
};

TEST_P(LambTest, EqualsReferenceAtAllCounts) {
  for (const DataType type : kAllTypes) {
    for (const size_t count : OptimizerCounts()) {
      for (const Edge edge : {Edge::kLow, Edge::kHigh}) {
        ExpectSame(RandomLamb(count, type, Numbers::kOrdinary), edge);
      }
    }
  }
}

TEST_P(LambTest, EqualsReferenceAtAllMagnitudes) {
  for (const Numbers numbers : kAllNumbers) {
    for (const DataType type : kAllTypes) {
      for (const size_t count : {37, 1000, 4096, 5001}) {
        for (int repetition = 0; repetition < 8; ++repetition) {
          ExpectSame(RandomLamb(count, type, numbers), Edge::kHigh);
        }
      }
    }
  }
}

TEST_P(LambTest, EqualsReferenceWhereValuesAreNotFinite) {
  for (const DataType type : kAllTypes) {
    for (int repetition = 0; repetition < 40; ++repetition) {
      LambCase c = RandomLamb(4500, type, Numbers::kOrdinary);
      if (repetition % 2 == 0) AddNonfinite(type, c.input, random_);
      if (repetition % 3 == 0) AddNonfinite(DataType::kF32, c.x, random_);
      if (repetition % 5 == 0) AddNonfinite(DataType::kF32, c.m, random_);
      if (repetition % 7 == 0) AddNonfinite(DataType::kF32, c.v_fresh, random_);
      ExpectSame(c, Edge::kHigh);
    }
  }
}

TEST_P(LambTest, DenseFollowsTheFormula) {
  for (const LambKernel step : {cpu::LambDense, reference::LambDense}) {
    const float x = 1, input = 8;
    float m = 2, v = 3;
    const LambNorms norms = step({.x = &x,
                                  .m = &m,
                                  .v = &v,
                                  .input = &input,
                                  .count = 1,
                                  .beta1 = 0.5f,
                                  .one_minus_beta1 = 0.5f,
                                  .beta2 = 0.5f,
                                  .one_minus_beta2 = 0.5f,
                                  .eps = 1,
                                  .weight_decay = 0.25f,
                                  .input_scale = 0.25f,
                                  .m_correction = 2,
                                  .v_correction = 2});
    EXPECT_EQ(m, 2.0f);  // g = 2
    EXPECT_EQ(v, 3.5f);  // 1.5 + (0.5 * 2) * 2
    const float up = 4.0f / (std::sqrt(7.0f) + 1);
    const float decayed = up + 0.25f;
    EXPECT_EQ(norms.x_squared, 1.0);
    EXPECT_EQ(norms.update_squared, up * up);
    EXPECT_EQ(norms.decayed_squared, decayed * decayed);
    EXPECT_EQ(norms.max_ratio, 0.0f);
  }
}

TEST_P(LambTest, FrozenFollowsTheFormula) {
  for (const LambKernel step : {cpu::LambFrozen, reference::LambFrozen}) {
    const float x[] = {1, 0}, input[] = {8, 0};
    float m[] = {2, 0}, v[] = {4, 1}, v_fresh[] = {3, 9};
    const LambNorms norms = step({.x = x,
                                  .m = m,
                                  .v = v,
                                  .v_fresh = v_fresh,
                                  .input = input,
                                  .count = 2,
                                  .beta1 = 0.5f,
                                  .one_minus_beta1 = 0.25f,
                                  .beta2 = 0.5f,
                                  .one_minus_beta2 = 0.5f,
                                  .eps = 1,
                                  .weight_decay = 0.25f,
                                  .input_scale = 0.25f,
                                  .m_correction = 2,
                                  .v_fresh_correction = 2,
                                  .floor = 2.5f});
    EXPECT_EQ(m[0], 2.0f);
    EXPECT_EQ(v[0], 4.0f);
    EXPECT_EQ(v_fresh[0], 9.5f);  // ghat = (2 - 1) / 0.25 = 4; 1.5 + (0.5 * 4) * 4
    EXPECT_EQ(v_fresh[1], 4.5f);
    // The denominators are 2.5 + 1; those of the fresh variances are sqrt(19) + 1 and 3 + 1.
    EXPECT_EQ(norms.max_ratio, 3.5f / 4.0f);
    const float up = 4.0f / 3.5f;
    const float decayed = up + 0.25f;
    EXPECT_EQ(norms.x_squared, 1.0);
    EXPECT_EQ(norms.update_squared, up * up);
    EXPECT_EQ(norms.decayed_squared, decayed * decayed);
  }
}

// Computes the formulas again in fp64, over more than one block.
TEST_P(LambTest, FollowsTheFormulasInDoublePrecision) {
  const auto at = [](const Bytes& array, size_t i) -> double {
    return reference::LoadElement(array.data(), DataType::kF32, i);
  };
  for (const bool is_dense : {true, false}) {
    LambCase c = RandomLamb(5000, DataType::kF32, Numbers::kOrdinary);
    c.parameters.eps = 1e-2f;
    LambUpdate& u = c.parameters;
    const LambResult result =
        Run(is_dense ? reference::LambDense : reference::LambFrozen, c, Edge::kHigh);
    std::array<double, 4> norms = {};
    for (size_t i = 0; i < u.count; ++i) {
      const double x = at(c.x, i), g = at(c.input, i) * u.input_scale;
      double m = 0, v = at(c.v, i), v_fresh = at(c.v_fresh, i), up = 0;
      if (!c.mask || reference::BitAt(c.mask->data(), i)) {
        const double kept = u.beta1 * at(c.m, i);
        const double ghat = is_dense ? g : (g - kept) / u.one_minus_beta1;
        double& live = is_dense ? v : v_fresh;
        m = is_dense ? kept + u.one_minus_beta1 * g : g;
        live = u.beta2 * live + u.one_minus_beta2 * ghat * ghat;
        const double floor = u.floor;
        const double den = std::max(std::sqrt(v * u.v_correction), floor) + u.eps;
        const double den_fresh = std::max(std::sqrt(v_fresh * u.v_fresh_correction), floor) + u.eps;
        up = m * u.m_correction / den;
        if (!is_dense) norms[3] = std::max(norms[3], den / den_fresh);
      }
      const double decayed = up + u.weight_decay * x;
      norms[0] += x * x;
      norms[1] += up * up;
      norms[2] += decayed * decayed;
      ASSERT_NEAR(at(result.m, i), m, 1e-6);
      ASSERT_NEAR(at(result.v, i), v, 1e-6);
      ASSERT_NEAR(at(result.v_fresh, i), v_fresh, 1e-5);
    }
    for (size_t k = 0; k < norms.size(); ++k) {
      EXPECT_NEAR(result.norms[k], norms[k], 1e-5 * norms[k]) << k;
    }
  }
}

// The fused sums are defined by this, even where squares leave the range of fp32.
TEST_P(LambTest, NormsAreSumsOfSquares) {
  for (const Numbers numbers : kAllNumbers) {
    for (const LambKernel step : {cpu::LambFrozen, reference::LambFrozen}) {
      LambCase c = RandomLamb(9000, DataType::kF32, numbers);
      c.mask.reset();
      c.parameters.eps = 1;
      c.parameters.floor = 0;
      c.parameters.weight_decay = 0;
      const LambUpdate u = Place(c, Edge::kHigh);
      const LambNorms norms = step(u);
      std::vector<float> up(u.count);
      for (size_t i = 0; i < u.count; ++i) {
        up[i] = (u.m[i] * u.m_correction) / (std::sqrt(u.v[i] * u.v_correction) + u.eps);
      }
      EXPECT_EQ(norms.x_squared, reference::SumOfSquares(u.x, DataType::kF32, u.count));
      EXPECT_EQ(norms.update_squared, reference::SumOfSquares(up.data(), DataType::kF32, u.count));
      EXPECT_EQ(norms.decayed_squared, norms.update_squared);
    }
  }
}

TEST_P(LambTest, NormsOfNonfiniteAreNonfinite) {
  for (const LambKernel step :
       {cpu::LambDense, cpu::LambFrozen, reference::LambDense, reference::LambFrozen}) {
    for (const float bad : {kInfinity, kNan}) {
      for (size_t i = 0; i < 200; ++i) {
        LambCase c = RandomLamb(200, DataType::kF32, Numbers::kOrdinary);
        c.mask.reset();
        reference::StoreElement(bad, DataType::kF32, i, c.input.data());
        LambNorms norms = step(Place(c, Edge::kHigh));
        EXPECT_TRUE(std::isfinite(norms.x_squared));
        EXPECT_FALSE(std::isfinite(norms.update_squared));
        EXPECT_FALSE(std::isfinite(norms.decayed_squared));
        reference::StoreElement(1, DataType::kF32, i, c.input.data());
        reference::StoreElement(bad, DataType::kF32, i, c.x.data());
        c.parameters.weight_decay = 0.01f;
        norms = step(Place(c, Edge::kHigh));
        EXPECT_FALSE(std::isfinite(norms.x_squared));
        EXPECT_TRUE(std::isfinite(norms.update_squared));
        EXPECT_FALSE(std::isfinite(norms.decayed_squared));
      }
    }
  }
}

TEST_P(LambTest, MaskedElementsOnlyDecay) {
  for (const bool is_dense : {true, false}) {
    for (const LambKernel step : is_dense ? std::array{cpu::LambDense, reference::LambDense}
                                          : std::array{cpu::LambFrozen, reference::LambFrozen}) {
      const float x[] = {4, 0}, input[] = {kNan, 0};
      float m[] = {3, 0}, v[] = {16, 4}, v_fresh[] = {1, 4};
      const uint8_t mask = 0b10;
      const LambNorms norms = step({.x = x,
                                    .m = m,
                                    .v = v,
                                    .v_fresh = v_fresh,
                                    .input = input,
                                    .count = 2,
                                    .beta1 = 0.5f,
                                    .one_minus_beta1 = 0.5f,
                                    .beta2 = 1,
                                    .weight_decay = 0.5f,
                                    .mask = &mask});
      EXPECT_EQ(m[0], 0.0f);
      EXPECT_EQ(v[0], 16.0f);
      EXPECT_EQ(v_fresh[0], 1.0f);
      EXPECT_EQ(norms.x_squared, 16.0);
      EXPECT_EQ(norms.update_squared, 0.0);
      EXPECT_EQ(norms.decayed_squared, 4.0);
      EXPECT_EQ(norms.max_ratio, is_dense ? 0.0f : 1.0f);  // 4 where the mask is clear
    }
  }
}

TEST_P(LambTest, NoElementNoRatio) {
  for (const LambKernel step : {cpu::LambFrozen, reference::LambFrozen}) {
    LambCase c = RandomLamb(100, DataType::kF32, Numbers::kOrdinary);
    c.mask = Bytes(13, 0);
    EXPECT_EQ(step(Place(c, Edge::kHigh)).max_ratio, 0.0f);
    c.parameters.count = 0;
    const LambNorms norms = step(Place(c, Edge::kHigh));
    EXPECT_EQ(norms.x_squared, 0.0);
    EXPECT_EQ(norms.max_ratio, 0.0f);
  }
}

TEST_P(LambTest, OverflowingFreshVarianceLeavesTheRatio) {
  for (const LambKernel step : {cpu::LambFrozen, reference::LambFrozen}) {
    LambCase c = RandomLamb(20, DataType::kF32, Numbers::kOrdinary);
    c.mask.reset();
    c.parameters.eps = 1;
    const float huge = 1e30f;
    reference::StoreElement(huge, DataType::kF32, 3, c.input.data());
    reference::StoreElement(huge, DataType::kF32, 3, c.v.data());  // would be the largest ratio
    const LambUpdate update = Place(c, Edge::kHigh);
    const LambNorms norms = step(update);
    EXPECT_EQ(update.v_fresh[3], kInfinity);
    EXPECT_GT(norms.max_ratio, 0.0f);
    EXPECT_LT(norms.max_ratio, 10.0f);
    EXPECT_TRUE(std::isfinite(norms.update_squared));
  }
}

// Moves a layer: AdamFrozen on the existing momentum, scaled by the measured update.
TEST_P(LambTest, AdamFrozenMovesByTheUpdate) {
  for (const size_t count : OptimizerCounts()) {
    const LambCase c = RandomLamb(count, DataType::kF32, Numbers::kOrdinary);
    LambUpdate u = Place(c, Edge::kHigh);
    u.weight_decay = 0;
    const LambNorms norms = cpu::LambDense(u);
    const Bytes old_m = m_.Read();
    AdamUpdate move = {.x = reinterpret_cast<float*>(x_.Place(Bytes(4 * count, 0), Edge::kHigh)),
                       .m = u.m,
                       .v = u.v,
                       .input = u.m,
                       .count = count,
                       .lr = 1,
                       .eps = u.eps,
                       .m_correction = u.m_correction,
                       .v_correction = u.v_correction,
                       .floor = u.floor,
                       .mask = u.mask};
    cpu::AdamFrozen(move);
    EXPECT_TRUE(m_.Read() == old_m);
    EXPECT_EQ(cpu::SumOfSquares(move.x, DataType::kF32, count), norms.update_squared);
  }
}

TEST_P(LambTest, AdamFrozenTakesItsMomentumAsInput) {
  for (const size_t count : OptimizerCounts()) {
    const LambCase c = RandomLamb(count, DataType::kF32, Numbers::kOrdinary);
    for (const auto& step : {cpu::AdamFrozen, reference::AdamFrozen}) {
      const LambUpdate u = Place(c, Edge::kHigh);
      std::vector<float> x(u.x, u.x + count), m(count);
      AdamUpdate update = {.x = x.data(),
                           .m = m.data(),
                           .v = u.v,
                           .input = u.m,
                           .count = count,
                           .lr = 0.1f,
                           .eps = 1e-6f,
                           .weight_decay = 0.01f,
                           .input_scale = 0.5f,
                           .mask = u.mask};
      step(update);
      update.x = const_cast<float*>(u.x);
      update.m = u.m;
      step(update);
      EXPECT_TRUE(SameBytes(u.x, x.data(), 4 * count)) << count;
      EXPECT_TRUE(SameBytes(u.m, m.data(), 4 * count)) << count;
    }
  }
}

ONEBIT_TEST_EACH_TARGET(LambTest);

}  // namespace
}  // namespace onebit::kernels
