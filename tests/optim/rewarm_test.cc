// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers that return to dense steps in the middle of a training.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/state_blob.h"
#include "tests/optim/optimizer_job.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kRate = 0.05;

// Moments of one rank in double precision, for all elements of a subject without weight decay.
struct Moments {
  std::vector<double> m, v;
};

Moments MomentsOf(OptimizerRank& optimizer) {
  const std::vector<float> m = MomentOf(optimizer.get(), "m", optimizer.x().size());
  const std::vector<float> v = MomentOf(optimizer.get(), "v", optimizer.x().size());
  return {{m.begin(), m.end()}, {v.begin(), v.end()}};
}

double Near(double value) { return 1e-5 * (1 + std::abs(value)); }

// Adam with textbook bias correction, except that v of compressed elements has seen only `v_age`
// steps.
TEST(RewarmTest, VarianceGoesOnFromWhereItWasFrozen) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  subject.config.biasCorrection = 1;
  subject.config.weightDecay = 0;
  const double beta1 = 0.9, beta2 = subject.config.beta2, eps = 1e-8;
  constexpr uint64_t kFrozenAt = 4, kRewarmedAt = 9;
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    for (uint64_t call = 1; call <= kRewarmedAt; ++call) {
      Check(optimizer.TryStep(call, kRate, nullptr));
    }
    Check(onebitOptimizerRewarm(optimizer.get(), 3));
    Moments expected = MomentsOf(optimizer);
    std::vector<double> x(optimizer.x().begin(), optimizer.x().end());
    const size_t first_dense_element = subject.counts[0];
    for (uint64_t t = kRewarmedAt + 1; t <= kRewarmedAt + 3; ++t) {
      const std::vector<float> gradient = optimizer.problem().Gradient(optimizer.x(), rank, t);
      onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
      Check(optimizer.TryStep(t, kRate, &result));
      EXPECT_EQ(result.stage, onebitStageDense);
      const uint64_t v_age = t - kRewarmedAt + kFrozenAt;
      const Moments actual = MomentsOf(optimizer);
      for (size_t k = 0; k < x.size(); ++k) {
        const double g = gradient[k];
        double& m = expected.m[k];
        double& v = expected.v[k];
        m = beta1 * m + (1 - beta1) * g;
        v = beta2 * v + (1 - beta2) * g * g;
        const double age = static_cast<double>(k < first_dense_element ? v_age : t);
        const double m_hat = m / (1 - std::pow(beta1, static_cast<double>(t)));
        const double v_hat = v / (1 - std::pow(beta2, age));
        x[k] -= kRate * m_hat / (std::sqrt(v_hat) + eps);
        EXPECT_NEAR(actual.m[k], m, Near(m)) << "step " << t << ", element " << k;
        EXPECT_NEAR(actual.v[k], v, Near(v)) << "step " << t << ", element " << k;
        EXPECT_NEAR(optimizer.x()[k], x[k], Near(x[k])) << "step " << t << ", element " << k;
      }
    }
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    Check(optimizer.TryStep(kRewarmedAt + 4, kRate, &result));
    EXPECT_EQ(result.stage, onebitStageCompressed);
    EXPECT_EQ(StatsOf(optimizer.handle()).frozen_at, kRewarmedAt + 3);
  });
}

// Returns the stages of steps 1, 2, ...: d for dense, c for compressed, b for both, . for local.
std::string StagesOf(OptimizerRank& optimizer, uint64_t first_call, uint64_t last_call) {
  std::string stages;
  for (uint64_t call = first_call; call <= last_call; ++call) {
    stages += "dcb."[optimizer.Step(call).stage];
  }
  return stages;
}

// Residuals are dropped: only m and v remain of the stage before.
TEST(RewarmTest, ResidualsAreDropped) {
  for (const OptimizerSubject& subject :
       {SubjectOf("adam", onebitAlgorithmOneBitAdam), SubjectOf("lamb", onebitAlgorithmOneBitLamb),
        SubjectOf("zero_one", onebitAlgorithmZeroOneAdam)}) {
    SCOPED_TRACE(subject.name);
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      OptimizerRank optimizer(subject, comm, rank);
      const Blob fresh = optimizer.Export();
      optimizer.StepUntil(1, 8);
      Check(onebitOptimizerSync(optimizer.get()));
      const auto residual_of = [&](const Blob& blob, SectionTag tag) {
        const StateReader reader = StateReader::Open(blob).value();
        const auto nested = *reader.section(SectionTag::kCompressor);
        const auto residual = *StateReader::Open(nested).value().section(tag);
        return Blob(residual.begin(), residual.end());
      };
      for (const SectionTag tag : {SectionTag::kWorker, SectionTag::kServer}) {
        EXPECT_NE(residual_of(optimizer.Export(), tag), residual_of(fresh, tag));
      }
      Check(onebitOptimizerRewarm(
          optimizer.get(), subject.name == "zero_one" ? ONEBIT_FREEZE_AUTOMATIC : int64_t{2}));
      for (const SectionTag tag : {SectionTag::kWorker, SectionTag::kServer}) {
        EXPECT_EQ(residual_of(optimizer.Export(), tag), residual_of(fresh, tag));
      }
    });
  }
}

TEST(RewarmTest, TwoPhasesHaveTheStagesThatTheyWereGiven) {
  for (const onebitVariant_t variant : {onebitVariantPaper, onebitVariantDeepSpeed}) {
    for (const auto algorithm : {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb}) {
      const OptimizerSubject subject = SubjectOf("", algorithm, variant);
      RunRanks(2, [&](onebitComm_t comm, int rank) {
        OptimizerRank optimizer(subject, comm, rank);
        const std::string first = variant == onebitVariantPaper ? "ddddcc" : ".dddcc";
        EXPECT_EQ(StagesOf(optimizer, 1, 6), first);
        Check(onebitOptimizerRewarm(optimizer.get(), 3));
        EXPECT_EQ(StatsOf(optimizer.handle()).frozen_at, 0u);
        EXPECT_EQ(StagesOf(optimizer, 7, 11), "dddcc");
        EXPECT_EQ(StatsOf(optimizer.handle()).frozen_at, 9u);
        Check(onebitOptimizerRewarm(optimizer.get(), ONEBIT_FREEZE_NEVER));
        EXPECT_EQ(StagesOf(optimizer, 12, 16), "ddddd");
        // Before a freeze it replaces the rule.
        Check(onebitOptimizerRewarm(optimizer.get(), 1));
        EXPECT_EQ(StagesOf(optimizer, 17, 18), "dc");
      });
    }
  }
}

// With a constant gradient and v at its limit the rule fires as early as it may, since it need not
// wait for v's bias to vanish.
TEST(RewarmTest, AutomaticRuleBeginsAnewWithTheBiasThatVHas) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  subject.config.freezeStep = 40;
  subject.config.beta2 = 0.75;  // compares with 4 steps before
  subject.config.lrWarmupSteps = 6;
  subject.counts = {8};
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    const auto step = [&] {
      std::vector<float> gradient(8, 0.5f);
      onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, kRate, 1, 0,
                                &result, nullptr));
      return result.stage;
    };
    for (int i = 0; i < 45; ++i) step();
    Check(onebitOptimizerRewarm(optimizer.get(), ONEBIT_FREEZE_AUTOMATIC));
    for (int i = 0; i < 7; ++i) EXPECT_EQ(step(), onebitStageDense) << i;
    EXPECT_EQ(step(), onebitStageCompressed);
    EXPECT_EQ(StatsOf(optimizer.handle()).frozen_at, 52u);
  });
}

TEST(RewarmTest, TrustRatiosBeginAnew) {
  const OptimizerSubject subject = SubjectOf("lamb", onebitAlgorithmOneBitLamb);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    const auto ratio = [&] {
      onebitTrustRatio_t of_first = ONEBIT_TRUST_RATIO_INIT;
      Check(onebitOptimizerGetTrustRatio(optimizer.get(), 0, &of_first));
      return of_first;
    };
    optimizer.StepUntil(1, 9);
    EXPECT_NE(ratio().factor, 1);
    EXPECT_NE(ratio().average, 0);
    Check(onebitOptimizerRewarm(optimizer.get(), 2));
    EXPECT_EQ(ratio().average, 0);
    EXPECT_EQ(ratio().factor, 1);
    EXPECT_EQ(ratio().momentumScale, 1);
    optimizer.Step(10);
    EXPECT_NEAR(ratio().average, 0.1 * ratio().coefficient, 1e-12);
  });
}

TEST(RewarmTest, PolicyOfZeroOneAdamBeginsAnew) {
  for (const onebitVariant_t variant : {onebitVariantPaper, onebitVariantDeepSpeed}) {
    const OptimizerSubject subject = SubjectOf("", onebitAlgorithmZeroOneAdam, variant);
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      OptimizerRank optimizer(subject, comm, rank);
      // DeepSpeed's policy swallows a gradient, but only the very first one.
      const uint64_t dropped = variant == onebitVariantPaper ? 0 : 1;
      const std::string first = StagesOf(optimizer, 1, 10 + dropped);
      ASSERT_EQ(first.back(), '.') << "the middle of an interval";
      EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), ONEBIT_FREEZE_AUTOMATIC),
                onebitInvalidUsage);
      EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("onebitOptimizerSync"));
      Check(onebitOptimizerSync(optimizer.get()));
      EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), 5), onebitInvalidArgument);
      Check(onebitOptimizerRewarm(optimizer.get(), ONEBIT_FREEZE_AUTOMATIC));
      const uint64_t calls = first.size();
      EXPECT_EQ(StagesOf(optimizer, calls + 1, 2 * calls - dropped), first.substr(dropped));
      EXPECT_EQ(StatsOf(optimizer.handle()).frozen_at, calls + 5);
    });
  }
}

TEST(RewarmTest, StateBehindItIsLoadedByAnOptimizerThatNeverWas) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  for (const int64_t steps : {int64_t{5}, int64_t{ONEBIT_FREEZE_AUTOMATIC}}) {
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      OptimizerRank straight(subject, comm, rank);
      OptimizerRank resumed(subject, comm, rank);
      straight.StepUntil(1, 6);
      Check(onebitOptimizerRewarm(straight.get(), steps));
      straight.StepUntil(7, 9);
      resumed.Import(straight.Export());
      straight.StepUntil(10, 40);
      resumed.StepUntil(10, 40);
      EXPECT_EQ(resumed.Export(), straight.Export());
      // The same with roles swapped.
      const OptimizerRank fresh(subject, comm, rank);
      resumed.Import(fresh.Export());
      EXPECT_EQ(resumed.Export(), fresh.Export());
    });
  }
}

// Ranks that disagree notice at the next step, and do not wait for each other.
TEST(RewarmTest, RanksThatDifferAreToldSo) {
  for (const auto algorithm : {onebitAlgorithmOneBitAdam, onebitAlgorithmZeroOneAdam}) {
    for (const bool has_dense_segment : {false, true}) {
      OptimizerSubject subject = SubjectOf("", algorithm);
      if (!has_dense_segment) subject.counts = {16};
      const bool is_zero_one = algorithm == onebitAlgorithmZeroOneAdam;
      CommGroup group(3);
      std::vector<std::unique_ptr<OptimizerRank>> ranks(3);
      group.Run([&](int rank) {
        auto& mine = ranks[static_cast<size_t>(rank)];
        mine = std::make_unique<OptimizerRank>(subject, group.comm(rank), rank);
        mine->StepUntil(1, 6);
        Check(onebitOptimizerSync(mine->get()));
      });
      Check(onebitOptimizerRewarm(ranks[1]->get(), is_zero_one ? ONEBIT_FREEZE_AUTOMATIC : 4));
      // Steps that send nothing cannot notice.
      const auto step = [&](int rank) {
        onebitResult_t result = onebitSuccess;
        for (uint64_t call = 7; call < 11 && result == onebitSuccess; ++call) {
          result = ranks[static_cast<size_t>(rank)]->TryStep(call, kRate, nullptr);
        }
        return result;
      };
      for (const Outcome& outcome : group.Call(step)) {
        EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
      }
    }
  }
}

TEST(RewarmTest, ARebindTellsOfRanksThatDiffer) {
  const OptimizerSubject subject = SubjectOf("", onebitAlgorithmOneBitAdam);
  CommGroup group(2);
  std::vector<UniqueComm> made(2);
  std::vector<std::unique_ptr<OptimizerRank>> ranks(2);
  for (const Outcome& outcome : group.Call([&](int rank) {
         const auto r = static_cast<size_t>(rank);
         ranks[r] = std::make_unique<OptimizerRank>(subject, group.comm(rank), rank);
         ranks[r]->StepUntil(1, 6);
         if (rank == 1) Check(onebitOptimizerRewarm(ranks[r]->get(), 5));
         onebitComm_t comm = nullptr;
         Check(onebitCommSplit(group.comm(rank), 0, 0, &comm, nullptr));
         made[r].reset(comm);
         int source = -1;
         return onebitOptimizerRebind(ranks[r]->get(), comm, &source);
       })) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_NE(outcome.text.find("onebitOptimizerRewarm was called on only one of ranks 0 and 1"),
              std::string::npos)
        << outcome.text;
  }
}

TEST(RewarmTest, ArgumentsAreChecked) {
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
    const OptimizerRank optimizer(subject, comm, rank);
    const Blob before = optimizer.Export();
    EXPECT_EQ(onebitOptimizerRewarm(nullptr, 1), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), 0), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), -2), onebitInvalidArgument);
    Check(onebitGroupStart());
    EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), 1), onebitInvalidUsage);
    Check(onebitGroupEnd());
    EXPECT_EQ(optimizer.Export(), before);

    subject.config.beta2 = 1 - 5e-7;
    const OptimizerRank slow(subject, comm, rank);
    EXPECT_EQ(onebitOptimizerRewarm(slow.get(), ONEBIT_FREEZE_AUTOMATIC), onebitInvalidArgument);
    subject.config.freezeStep = ONEBIT_FREEZE_NEVER;
    const OptimizerRank never(subject, comm, rank);
    EXPECT_EQ(onebitOptimizerRewarm(never.get(), 3), onebitInvalidUsage);
    const OptimizerRank deepspeed(SubjectOf("", onebitAlgorithmOneBitLamb, onebitVariantDeepSpeed),
                                  comm, rank);
    EXPECT_EQ(onebitOptimizerRewarm(deepspeed.get(), ONEBIT_FREEZE_AUTOMATIC),
              onebitInvalidArgument);
    // Its first step is swallowed, which would leave nothing to freeze.
    EXPECT_EQ(onebitOptimizerRewarm(deepspeed.get(), 1), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerRewarm(deepspeed.get(), 2), onebitSuccess);
  });
}

TEST(RewarmTest, BeforeTheFirstStepChangesNothing) {
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    const OptimizerSubject subject =
        SubjectOf("zero_one", onebitAlgorithmZeroOneAdam, onebitVariantDeepSpeed);
    OptimizerRank plain(subject, comm, rank), rewarmed(subject, comm, rank);
    Check(onebitOptimizerRewarm(rewarmed.get(), ONEBIT_FREEZE_AUTOMATIC));
    for (uint64_t call = 1; call <= 20; ++call) {
      EXPECT_EQ(rewarmed.Step(call).stage, plain.Step(call).stage) << call;
    }
    EXPECT_EQ(rewarmed.x(), plain.x());
    const Blob state = rewarmed.Export();
    EXPECT_EQ(state, plain.Export());
    rewarmed.Import(state);
  });
}

TEST(RewarmTest, WithoutParametersThereIsNothingToDo) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  subject.counts = {0};
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    optimizer.StepUntil(1, 6);
    EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), 2), onebitSuccess);
    EXPECT_EQ(StagesOf(optimizer, 7, 10), "dddd");
  });
}

}  // namespace
}  // namespace onebit::testing
