// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Comparison with AdamW in float64, and the warning about the difference by design.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

// AdamW (Loshchilov and Hutter 2019) on averaged gradients; v stops at `freeze_step`.
struct AdamW {
  double lr = 0.05, beta1 = 0.9, beta2 = 0.97, eps = 1e-8, weight_decay = 0.01;
  uint64_t freeze_step = UINT64_MAX;
  std::vector<double> m, v;

  void Step(uint64_t t, const std::vector<double>& gradient, std::vector<double>* x) {
    m.resize(x->size());
    v.resize(x->size());
    const double m_correction = 1 - std::pow(beta1, static_cast<double>(t));
    const double v_correction = 1 - std::pow(beta2, static_cast<double>(std::min(t, freeze_step)));
    for (size_t k = 0; k < x->size(); ++k) {
      m[k] = beta1 * m[k] + (1 - beta1) * gradient[k];
      if (t <= freeze_step) v[k] = beta2 * v[k] + (1 - beta2) * gradient[k] * gradient[k];
      const double step = m[k] / m_correction / (std::sqrt(v[k] / v_correction) + eps);
      (*x)[k] -= lr * (step + weight_decay * (*x)[k]);
    }
  }
};

// Trains `training` and AdamW, each on gradients at its own parameters, and compares.
void ExpectAdamW(const Training& training, AdamW adam) {
  const Record record = Train(training)[0];
  const ToyProblem& problem = training.problem;
  std::vector<double> x(record.x[0].begin(), record.x[0].end());
  for (uint64_t t = 1; t <= training.calls; ++t) {
    const std::vector<float> at(x.begin(), x.end());
    std::vector<double> gradient(x.size());
    for (int rank = 0; rank < problem.ranks; ++rank) {
      const std::vector<float> local = problem.Gradient(at, rank, t);
      for (size_t k = 0; k < x.size(); ++k) gradient[k] += double(local[k]) / problem.ranks;
    }
    adam.Step(t, gradient, &x);
    ASSERT_LT(MaxDifference(record.x[t], x), 1e-5) << "step " << t;
  }
}

Training BiasCorrected(int64_t freeze_step) {
  Training training;
  training.problem = {.ranks = 4, .dimension = 40};
  training.config.beta2 = 0.97;
  training.config.weightDecay = 0.01;
  training.config.biasCorrection = 1;
  training.config.varianceFloor = 0;
  training.config.freezeStep = freeze_step;
  training.calls = 60;
  return training;
}

TEST(OneBitAdamWTest, DenseStageIsAdamW) {
  ExpectAdamW(BiasCorrected(60), {});
  ExpectAdamW(BiasCorrected(ONEBIT_FREEZE_NEVER), {});
}

TEST(OneBitAdamWTest, LateFreezeChangesNothing) {
  const std::vector<Record> late = Train(BiasCorrected(60));
  const std::vector<Record> never = Train(BiasCorrected(ONEBIT_FREEZE_NEVER));
  EXPECT_EQ(late[0].x, never[0].x);
  EXPECT_EQ(late[0].v, never[0].v);
  EXPECT_EQ(late[0].stats.frozen_at, 60u);
}

TEST(OneBitAdamWTest, FrozenVarianceKeepsItsCorrection) {
  // One rank, whose compressed average is exact.
  Training training = BiasCorrected(12);
  training.problem.ranks = 1;
  ExpectAdamW(training, {.freeze_step = 12});
}

// ------------------------------------------------------------------------------------- warning

TEST(OneBitAdamWarningTest, NoCorrectionAndNoWarmup) {
  Training training;
  training.config.lrWarmupSteps = 0;
  const auto warnings = WarningsOf(training);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("bias correction"), std::string::npos) << warnings[0];
}

TEST(OneBitAdamWarningTest, QuietWithCorrection) {
  Training training;
  training.config.lrWarmupSteps = 0;
  training.config.biasCorrection = 1;
  EXPECT_TRUE(WarningsOf(training).empty());
}

TEST(OneBitAdamWarningTest, QuietWithWarmup) {
  Training rising;
  rising.config.lrWarmupSteps = 0;
  rising.learning_rate = [](uint64_t t) { return 0.001 * static_cast<double>(t); };
  EXPECT_TRUE(WarningsOf(rising).empty());
  Training announced;
  announced.config.lrWarmupSteps = 250;
  EXPECT_TRUE(WarningsOf(announced).empty());
}

}  // namespace
}  // namespace onebit::testing
