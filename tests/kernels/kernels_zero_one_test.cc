// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 0/1 Adam kernels: every instruction set against the scalar oracle, the oracle against the
// formulas.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/zero_one.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/optimizer_arrays.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct ZeroOneKernels {
  decltype(&cpu::ZeroOneLocal) local;
  decltype(&cpu::ZeroOneAccumulate) accumulate;
  decltype(&cpu::ZeroOneSync) sync;
  decltype(&cpu::RefreshVariance) refresh;
};
constexpr ZeroOneKernels kCpu = {cpu::ZeroOneLocal, cpu::ZeroOneAccumulate, cpu::ZeroOneSync,
                                 cpu::RefreshVariance};
constexpr ZeroOneKernels kReference = {reference::ZeroOneLocal, reference::ZeroOneAccumulate,
                                       reference::ZeroOneSync, reference::RefreshVariance};
constexpr std::array kBoth = {kCpu, kReference};

// State and input of one step.
struct ZeroOneCase {
  ZeroOneUpdate parameters;
  Bytes x, m, u, x_sync, v;
  std::optional<Bytes> input, mask;
  std::vector<float> floors;
  bool has_copy = false;
};

// Steps without `out` leave it unchanged.
struct ZeroOneResult {
  Bytes x, m, u, x_sync, v, copy, out;
  friend bool operator==(const ZeroOneResult&, const ZeroOneResult&) = default;
};

class ZeroOneTest : public EachTarget {
 protected:
  Bytes RandomF32s(Numbers numbers, size_t count) {
    return RandomElements(DataType::kF32, numbers, count, random_);
  }

  ZeroOneCase RandomStep(size_t count, DataType input_type, Numbers numbers) {
    ZeroOneCase c;
    c.parameters = {.input_type = input_type,
                    .count = count,
                    .lr = 1e-2f,
                    .lr_scale = random_() % 2 == 0 ? 1 : 0.7f,
                    .beta1 = 0.9f,
                    .one_minus_beta1 = 1 - 0.9f,
                    .eps = random_() % 2 == 0 ? 0 : 1e-6f,
                    .weight_decay = random_() % 2 == 0 ? 0 : 0.01f,
                    .lr_sum = 3e-2f,
                    .input_scale = random_() % 2 == 0 ? 1 : 0.3f,
                    .floor = random_() % 2 == 0 ? 0 : 0.2f,
                    .v_correction = random_() % 2 == 0 ? 1 : 1.25f,
                    .local_decay = random_() % 2 == 0 ? 0 : 0.02f,
                    .copy_type = kAllTypes[random_() % 3]};
    c.x = RandomF32s(numbers, count);
    c.m = RandomF32s(numbers, count);
    c.u = RandomF32s(numbers, count);
    c.x_sync = RandomF32s(numbers, count);
    c.v = RandomVariance(numbers, count, random_);
    if (random_() % 8 != 0) c.input = RandomElements(input_type, numbers, count, random_);
    if (random_() % 2 == 0) c.mask = RandomBits(count, random_);
    c.floors = RandomFloors(count, random_);
    c.has_copy = random_() % 4 != 0;
    return c;
  }

  ZeroOneUpdate Place(const ZeroOneCase& c, Edge edge) {
    ZeroOneUpdate update = c.parameters;
    update.x = reinterpret_cast<float*>(x_.Place(c.x, edge));
    update.m = reinterpret_cast<float*>(m_.Place(c.m, edge));
    update.u = reinterpret_cast<float*>(u_.Place(c.u, edge));
    update.x_sync = reinterpret_cast<float*>(x_sync_.Place(c.x_sync, edge));
    update.v = reinterpret_cast<float*>(v_.Place(c.v, edge));
    if (c.input) update.input = input_.Place(*c.input, edge);
    if (c.mask) update.mask = mask_.Place(*c.mask, edge);
    if (!c.floors.empty()) update.block_floors = c.floors.data();
    const size_t copy_bytes = c.has_copy ? update.count * BytesOf(update.copy_type) : 0;
    uint8_t* copy = copy_.Place(Bytes(copy_bytes, 0xEE), edge);
    if (c.has_copy) update.copy = copy;
    out_.Place(Bytes(4 * update.count, 0xEE), edge);
    return update;
  }

  ZeroOneResult Read(DataType copy_type) const {
    return {.x = x_.Read(),
            .m = m_.Read(),
            .u = u_.Read(),
            .x_sync = x_sync_.Read(),
            .v = v_.Read(),
            .copy = copy_.Read(copy_type),
            .out = out_.Read()};
  }

  // Runs all three steps from the same state. The sync receives the contribution as the mean.
  std::array<ZeroOneResult, 3> Run(const ZeroOneKernels& kernels, const ZeroOneCase& c, Edge edge) {
    std::array<ZeroOneResult, 3> results;
    const DataType copy_type = c.parameters.copy_type;
    kernels.local(Place(c, edge));
    results[0] = Read(copy_type);

    const ZeroOneUpdate update = Place(c, edge);
    const std::vector<float> no_out(update.count, -1);
    kernels.accumulate(update, out_.Place(no_out, edge));
    results[1] = Read(copy_type);

    ZeroOneCase sync = c;
    sync.input = results[1].out;
    kernels.sync(Place(sync, edge));
    results[2] = Read(copy_type);
    return results;
  }

  void ExpectSame(const ZeroOneCase& c, Edge edge) {
    const auto actual = Run(kCpu, c, edge);
    const auto expected = Run(kReference, c, edge);
    EXPECT_TRUE(actual[0] == expected[0]) << "local, count " << c.parameters.count;
    EXPECT_TRUE(actual[1] == expected[1]) << "accumulate, count " << c.parameters.count;
    EXPECT_TRUE(actual[2] == expected[2]) << "sync, count " << c.parameters.count;
  }

  GuardedArray x_, m_, u_, x_sync_, v_, input_, mask_, copy_, out_;
  Random random_{11};
};

TEST_P(ZeroOneTest, EqualsReferenceAtAllCounts) {
  for (const DataType type : kAllTypes) {
    for (const size_t count : OptimizerCounts()) {
      for (const Edge edge : {Edge::kLow, Edge::kHigh}) {
        ExpectSame(RandomStep(count, type, Numbers::kOrdinary), edge);
      }
    }
  }
}

TEST_P(ZeroOneTest, EqualsReferenceAtAllMagnitudes) {
  for (const Numbers numbers : kAllNumbers) {
    for (const DataType type : kAllTypes) {
      for (const size_t count : {37, 1000, 4097}) {
        for (int repetition = 0; repetition < 12; ++repetition) {
          ExpectSame(RandomStep(count, type, numbers), Edge::kHigh);
        }
      }
    }
  }
}

TEST_P(ZeroOneTest, EqualsReferenceWhereValuesAreNotFinite) {
  for (const DataType type : kAllTypes) {
    for (int repetition = 0; repetition < 40; ++repetition) {
      ZeroOneCase c = RandomStep(1001, type, Numbers::kOrdinary);
      if (c.input) AddNonfinite(type, *c.input, random_);
      if (repetition % 2 == 0) AddNonfinite(DataType::kF32, c.x, random_);
      if (repetition % 3 == 0) AddNonfinite(DataType::kF32, c.u, random_);
      if (repetition % 5 == 0) AddNonfinite(DataType::kF32, c.v, random_);
      ExpectSame(c, Edge::kHigh);
    }
  }
}

TEST_P(ZeroOneTest, RefreshEqualsReferenceAlsoInPlace) {
  for (const DataType type : kAllTypes) {
    for (const Numbers numbers : kAllNumbers) {
      for (const size_t count : {0, 1, 7, 100, 257, 4099}) {
        const Bytes v = RandomVariance(numbers, count, random_);
        const Bytes g = RandomElements(type, numbers, count, random_);
        const auto run = [&](const ZeroOneKernels& kernels, GuardedArray& out) {
          const auto* old_v = reinterpret_cast<float*>(v_.Place(v, Edge::kHigh));
          const uint8_t* input = input_.Place(g, Edge::kHigh);
          uint8_t* to = &out == &v_       ? v_.Place(v, Edge::kHigh)
                        : &out == &input_ ? input_.Place(g, Edge::kHigh)
                                          : out_.Place(Bytes(v.size(), 0xEE), Edge::kHigh);
          kernels.refresh(old_v, input, type, 0.3f, 0.99f, 0.01f, count,
                          reinterpret_cast<float*>(to));
          return out.Read();
        };
        const Bytes expected = run(kReference, out_);
        EXPECT_TRUE(run(kCpu, out_) == expected) << count;
        EXPECT_TRUE(run(kCpu, v_) == expected) << count;
        EXPECT_TRUE(run(kReference, v_) == expected) << count;
        if (type != DataType::kF32) continue;
        EXPECT_TRUE(run(kCpu, input_) == expected) << count;
        EXPECT_TRUE(run(kReference, input_) == expected) << count;
      }
    }
  }
}

TEST_P(ZeroOneTest, RefreshFollowsTheFormula) {
  for (const ZeroOneKernels& kernels : kBoth) {
    const float v = 3, g = 8;
    float out = 0;
    kernels.refresh(&v, &g, DataType::kF32, 0.25f, 0.5f, 0.25f, 1, &out);
    EXPECT_EQ(out, 2.5f);  // 1.5 + (0.25 * 2) * 2
  }
}

// One element whose steps can be computed by hand; den is 2 + 2.
struct SmallStep {
  float x = 3, m = 2, u = 1, x_sync = 2, copy = 0;
  const float v = 2, input = 8;

  ZeroOneUpdate Update() {
    return {.x = &x,
            .m = &m,
            .u = &u,
            .x_sync = &x_sync,
            .v = &v,
            .input = &input,
            .count = 1,
            .lr = 0.5f,
            .lr_scale = 2,
            .beta1 = 0.5f,
            .one_minus_beta1 = 0.25f,
            .eps = 2,
            .weight_decay = 0.25f,
            .lr_sum = 0.5f,
            .input_scale = 0.5f,
            .v_correction = 2,
            .copy = &copy};
  }
};

TEST_P(ZeroOneTest, LocalStepFollowsTheFormula) {
  for (const ZeroOneKernels& kernels : kBoth) {
    SmallStep s;
    kernels.local(s.Update());
    EXPECT_EQ(s.m, 2.0f);                    // 0.5 * 2 + 0.25 * 4
    EXPECT_EQ(s.u, 2.0f);                    // 1 + 0.5 * 2
    EXPECT_EQ(s.x, 2 - 2 * (0.5f + 0.25f));  // the decay is 0.25 * 0.5 of x_sync
    EXPECT_EQ(s.x_sync, 2.0f);
    EXPECT_EQ(s.copy, s.x);
  }
}

TEST_P(ZeroOneTest, LocalDecayIsPartOfTheStep) {
  for (const ZeroOneKernels& kernels : kBoth) {
    SmallStep s;
    ZeroOneUpdate update = s.Update();
    update.local_decay = 0.5f;
    float out = 0;
    kernels.accumulate(update, &out);
    EXPECT_EQ(out, 5.0f);  // 1 + 0.5 * (2 + (0.5 * 3) * 4)
    kernels.local(update);
    EXPECT_EQ(s.m, 2.0f);
    EXPECT_EQ(s.u, 5.0f);
    EXPECT_EQ(s.x, 2 - 2 * (1.25f + 0.25f));
  }
}

TEST_P(ZeroOneTest, SyncFollowsTheFormula) {
  for (const ZeroOneKernels& kernels : kBoth) {
    SmallStep s;
    kernels.sync(s.Update());  // the mean is 8, whatever input_scale says
    EXPECT_EQ(s.m, 16.0f);
    EXPECT_EQ(s.u, 0.0f);
    EXPECT_EQ(s.x, 2 - 2 * (2 + 0.25f));
    EXPECT_EQ(s.x_sync, s.x);
    EXPECT_EQ(s.copy, s.x);
  }
}

TEST_P(ZeroOneTest, FloorRaisesTheDenominator) {
  for (const ZeroOneKernels& kernels : kBoth) {
    SmallStep s;
    ZeroOneUpdate update = s.Update();
    update.floor = 6;
    update.weight_decay = 0;
    kernels.sync(update);
    EXPECT_EQ(s.x, 2 - 2 * 1.0f);  // 8 / (6 + 2)
  }
}

// If u is equal on all ranks, its mean leads to the x that each rank has already.
TEST_P(ZeroOneTest, SyncOfEqualRanksRepeatsTheLocalStep) {
  for (const ZeroOneKernels& kernels : kBoth) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      const ZeroOneCase c = RandomStep(4321, DataType::kBf16, Numbers::kOrdinary);
      const auto [local, contribution, sync] = Run(kernels, c, Edge::kHigh);
      EXPECT_TRUE(contribution.out == local.u);
      EXPECT_TRUE(sync.x == local.x);
      EXPECT_TRUE(sync.copy == local.copy);
      EXPECT_TRUE(sync.x_sync == local.x);
    }
  }
}

TEST_P(ZeroOneTest, ContributionLeavesTheStateAlone) {
  for (const ZeroOneKernels& kernels : kBoth) {
    const ZeroOneCase c = RandomStep(4321, DataType::kF16, Numbers::kOrdinary);
    const ZeroOneResult result = Run(kernels, c, Edge::kHigh)[1];
    EXPECT_TRUE(result.x == c.x);
    EXPECT_TRUE(result.m == c.m);
    EXPECT_TRUE(result.u == c.u);
    EXPECT_TRUE(result.x_sync == c.x_sync);
    EXPECT_TRUE(result.v == c.v);
    EXPECT_TRUE(result.copy == Bytes(result.copy.size(), 0xEE));
  }
}

TEST_P(ZeroOneTest, ContributionMayReplaceTheGradient) {
  for (const size_t count : OptimizerCounts()) {
    ZeroOneCase c = RandomStep(count, DataType::kF32, Numbers::kOrdinary);
    c.input = RandomF32s(Numbers::kOrdinary, count);
    const Bytes expected = Run(kReference, c, Edge::kHigh)[1].out;
    for (const ZeroOneKernels& kernels : kBoth) {
      const ZeroOneUpdate update = Place(c, Edge::kHigh);
      kernels.accumulate(update, static_cast<float*>(const_cast<void*>(update.input)));
      EXPECT_TRUE(input_.Read() == expected) << count;
    }
  }
}

TEST_P(ZeroOneTest, ContributionNeedsNoParametersWithoutLocalDecay) {
  for (const ZeroOneKernels& kernels : kBoth) {
    ZeroOneCase c = RandomStep(5000, DataType::kF32, Numbers::kOrdinary);
    c.parameters.local_decay = 0;
    const Bytes expected = Run(kReference, c, Edge::kHigh)[1].out;
    ZeroOneUpdate update = Place(c, Edge::kHigh);
    update.x = update.x_sync = nullptr;
    update.v = nullptr;
    kernels.accumulate(update, out_.Place(std::vector<float>(5000), Edge::kHigh));
    EXPECT_TRUE(out_.Read() == expected);
  }
}

// A rank whose gradient is not finite continues with its momentum; the scale that it could not
// compute does not matter.
TEST_P(ZeroOneTest, WithoutInputTheMomentumFades) {
  for (const ZeroOneKernels& kernels : kBoth) {
    SmallStep s;
    ZeroOneUpdate update = s.Update();
    update.input = nullptr;
    update.input_scale = kNan;
    float out = 0;
    kernels.accumulate(update, &out);
    EXPECT_EQ(out, 1.5f);
    kernels.local(update);
    EXPECT_EQ(s.m, 1.0f);
    EXPECT_EQ(s.u, 1.5f);
  }
}

TEST_P(ZeroOneTest, MaskedElementsOnlyDecay) {
  for (const ZeroOneKernels& kernels : kBoth) {
    for (const bool is_sync : {false, true}) {
      float x[] = {3, 3}, m[] = {2, 2}, u[] = {1, 1}, x_sync[] = {2, 2}, out[] = {5, 5};
      const float v[] = {0, 1}, input[] = {kNan, 8};
      const uint8_t mask = 0b10;
      const ZeroOneUpdate update = {.x = x,
                                    .m = m,
                                    .u = u,
                                    .x_sync = x_sync,
                                    .v = v,
                                    .input = input,
                                    .count = 2,
                                    .lr = 1,
                                    .beta1 = 0.5f,
                                    .one_minus_beta1 = 0.5f,
                                    .weight_decay = 0.5f,
                                    .lr_sum = 0.5f,
                                    .mask = &mask};
      kernels.accumulate(update, out);
      EXPECT_EQ(out[0], 0.0f);
      EXPECT_EQ(out[1], 6.0f);
      (is_sync ? kernels.sync : kernels.local)(update);
      EXPECT_EQ(m[0], 0.0f);
      EXPECT_EQ(u[0], 0.0f);
      EXPECT_EQ(x[0], 1.5f);  // 2 - 0.25 * 2, although den is 0
      EXPECT_EQ(x_sync[0], is_sync ? 1.5f : 2.0f);
      EXPECT_NE(m[1], 0.0f);
    }
  }
}

// Computes algorithm 1 of the paper in fp64, with two ranks, an exact mean and several intervals,
// to test the kernels together.
TEST_P(ZeroOneTest, FollowsTheAlgorithmInDoublePrecision) {
  constexpr size_t kRanks = 2, kCount = 300;
  constexpr float kBeta1 = 0.75f, kEps = 1e-3f, kDecay = 0.125f;
  using Floats = std::vector<float>;
  using Doubles = std::vector<double>;
  for (const ZeroOneKernels& kernels : kBoth) {
    const Bytes variance = RandomVariance(Numbers::kOrdinary, kCount, random_);
    const auto* v = reinterpret_cast<const float*>(variance.data());
    const Bytes start = RandomF32s(Numbers::kOrdinary, kCount);
    const auto* x0 = reinterpret_cast<const float*>(start.data());
    std::array<Floats, kRanks> x, m, u, x_sync, contribution;
    std::array<Doubles, kRanks> xd, md, ud;
    Doubles xd_sync(x0, x0 + kCount);
    for (size_t r = 0; r < kRanks; ++r) {
      x[r] = x_sync[r] = Floats(x0, x0 + kCount);
      m[r] = u[r] = contribution[r] = Floats(kCount);
      xd[r] = xd_sync;
      md[r] = ud[r] = Doubles(kCount);
    }
    float lr_sum = 0;
    for (int t = 1; t <= 12; ++t) {
      const float lr = 0.5f / static_cast<float>(1 << (t % 3));
      lr_sum += lr;
      const bool is_sync = t % 4 == 0;
      const auto update_of = [&](size_t r, const void* input) {
        return ZeroOneUpdate{.x = x[r].data(),
                             .m = m[r].data(),
                             .u = u[r].data(),
                             .x_sync = x_sync[r].data(),
                             .v = v,
                             .input = input,
                             .count = kCount,
                             .lr = lr,
                             .beta1 = kBeta1,
                             .one_minus_beta1 = 1 - kBeta1,
                             .eps = kEps,
                             .weight_decay = kDecay,
                             .lr_sum = lr_sum};
      };
      for (size_t r = 0; r < kRanks; ++r) {
        const Bytes gradient = RandomF32s(Numbers::kOrdinary, kCount);
        const auto* g = reinterpret_cast<const float*>(gradient.data());
        if (is_sync) {
          kernels.accumulate(update_of(r, g), contribution[r].data());
        } else {
          kernels.local(update_of(r, g));
        }
        for (size_t i = 0; i < kCount; ++i) {
          md[r][i] = kBeta1 * md[r][i] + (1 - kBeta1) * g[i];
          ud[r][i] += lr * md[r][i];
          xd[r][i] =
              xd_sync[i] - ud[r][i] / (std::sqrt(v[i]) + kEps) - kDecay * lr_sum * xd_sync[i];
        }
      }
      if (is_sync) {
        Floats mean(kCount);
        for (size_t i = 0; i < kCount; ++i) {
          mean[i] = (contribution[0][i] + contribution[1][i]) / 2;
          const double mean_u = (ud[0][i] + ud[1][i]) / 2;
          xd_sync[i] += -mean_u / (std::sqrt(v[i]) + kEps) - kDecay * lr_sum * xd_sync[i];
          for (size_t r = 0; r < kRanks; ++r) {
            md[r][i] = mean_u / lr_sum;
            ud[r][i] = 0;
            xd[r][i] = xd_sync[i];
          }
        }
        for (size_t r = 0; r < kRanks; ++r) kernels.sync(update_of(r, mean.data()));
        EXPECT_EQ(x[0], x[1]);
        lr_sum = 0;
      }
      for (size_t r = 0; r < kRanks; ++r) {
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_NEAR(x[r][i], xd[r][i], 1e-5 * (1 + std::abs(xd[r][i]))) << t;
          ASSERT_NEAR(m[r][i], md[r][i], 1e-5) << t;
          ASSERT_NEAR(u[r][i], ud[r][i], 1e-5) << t;
        }
      }
    }
  }
}

ONEBIT_TEST_EACH_TARGET(ZeroOneTest);

}  // namespace
}  // namespace onebit::kernels
