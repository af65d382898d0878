// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Agreements of 0/1 Adam's ranks other than steps, when only some ranks have heard of them.
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/optimizer_job.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

constexpr int kRanks = 3;

// Ranks of one training within an interval.
class IntervalJob {
 public:
  IntervalJob(const OptimizerSubject& subject, const Transport* transport)
      : group_(kRanks, kPatient, transport) {
    group_.Run([&](int rank) {
      ranks_[rank] = std::make_unique<OptimizerRank>(subject, group_.comm(rank), rank);
    });
    Step();  // DeepSpeed's first step sends nothing
    while (Step() != onebitStageLocal) {
    }
  }

  // Makes a step on all ranks at a constant rate; returns its stage.
  onebitStage_t Step() {
    std::vector<onebitStepResult_t> results(kRanks, ONEBIT_STEP_RESULT_INIT);
    ++call_;
    for (const Outcome& outcome : group_.Call([&](int rank) {
           return ranks_[rank]->TryStep(call_, 0.05, &results[static_cast<size_t>(rank)]);
         })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    for (const onebitStepResult_t& result : results) {
      EXPECT_EQ(result.stage, results[0].stage);
      EXPECT_EQ(result.step, results[0].step);
      EXPECT_EQ(result.skipped, results[0].skipped);
    }
    return static_cast<onebitStage_t>(results[0].stage);
  }
  // The same with a non-finite gradient on rank 1; returns how many ranks succeeded.
  int BadStep() {
    ++call_;
    return Succeeded(group_.Call([&](int rank) {
      std::vector<float> gradient =
          ranks_[rank]->problem().Gradient(ranks_[rank]->x(), rank, call_);
      if (rank == 1) gradient[0] = std::numeric_limits<float>::infinity();
      return onebitOptimizerStep(ranks_[rank]->get(), gradient.data(), onebitFloat32, 0.05, 1, 0,
                                 nullptr, nullptr);
    }));
  }
  int Sync() {
    return Succeeded(group_.Call([&](int rank) { return onebitOptimizerSync(Get(rank)); }));
  }

  // Migrates all ranks to a communicator of the same ranks.
  void Rebind() {
    for (const Outcome& outcome : group_.Call([&](int rank) {
           onebitComm_t comm = nullptr;
           Check(onebitCommShrink(group_.comm(rank), nullptr, 0, &comm, nullptr,
                                  ONEBIT_SHRINK_DEFAULT));
           made_[rank].reset(comm);
           int source = -1;
           return onebitOptimizerRebind(Get(rank), comm, &source);
         })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
  }

  // Exports on all ranks; onebitStateGlobal fails unless ranks agree on everything.
  std::vector<Blob> Export(onebitStateKind_t kind) {
    std::vector<Blob> states(kRanks);
    group_.Run([&](int rank) { states[static_cast<size_t>(rank)] = ranks_[rank]->Export(kind); });
    return states;
  }
  std::vector<float> MomentumOf(int rank) {
    return MomentOf(Get(rank), "m", ranks_[rank]->x().size());
  }
  const std::vector<float>& x(int rank) { return ranks_[rank]->x(); }
  onebitOptimizer_t Get(int rank) const { return ranks_[rank]->get(); }

 private:
  static int Succeeded(const std::vector<Outcome>& outcomes) {
    int count = 0;
    for (const Outcome& outcome : outcomes) count += outcome.result == onebitSuccess ? 1 : 0;
    return count;
  }

  CommGroup group_;
  UniqueComm made_[kRanks];
  std::unique_ptr<OptimizerRank> ranks_[kRanks];
  uint64_t call_ = 0;
};

class SyncFaultTest : public ::testing::TestWithParam<onebitVariant_t> {
 protected:
  OptimizerSubject Subject() const {
    OptimizerSubject subject = SubjectOf("zero_one", onebitAlgorithmZeroOneAdam, GetParam());
    subject.config.localStepScaler = 1;
    subject.config.localStepClipper = 4;
    return subject;
  }
  // Makes steps up to the last one before a sync.
  void StepToSync(IntervalJob& job) {
    IntervalJob twin(Subject(), nullptr);
    int steps = 0;
    while (twin.Step() == onebitStageLocal) ++steps;
    for (int i = 0; i < steps; ++i) EXPECT_EQ(job.Step(), onebitStageLocal);
  }
};

// Tries a fault at each message of a call, until at least one fault reached some ranks only after
// they had finished, which depends on timing. `call` returns how many ranks succeeded.
template <typename MakeJob, typename Call, typename CheckJob>
void DamageEachMessage(MakeJob make_job, Call call, CheckJob check) {
  constexpr int kMostRounds = 20;
  int missed = 0;
  for (int round = 0; round < kMostRounds && missed == 0; ++round) {
    bool has_struck = true;
    for (uint64_t message = 0; has_struck; ++message) {
      ASSERT_LT(message, 50u);
      has_struck = false;
      for (int sender = 0; sender < kRanks; ++sender) {
        SCOPED_TRACE(::testing::Message() << "message " << message << " of rank " << sender);
        FaultyTransport transport;
        const std::unique_ptr<IntervalJob> job = make_job(transport.transport());
        transport.Arm(
            {.kind = Fault::Kind::kFlipHeader, .rank = sender, .message = message, .bit = 100});
        const int done = call(*job);
        const bool struck = transport.has_struck();
        transport.Arm({});
        has_struck |= struck;
        if (!struck) continue;
        missed += done > 0 && done < kRanks ? 1 : 0;
        job->Rebind();
        check(*job, done);
      }
    }
  }
  EXPECT_GT(missed, 0);
}

TEST_P(SyncFaultTest, ASyncThatSomeRanksMissedIsTakenOver) {
  IntervalJob straight(Subject(), nullptr);
  EXPECT_EQ(straight.Sync(), kRanks);
  const std::vector<Blob> expected = straight.Export(onebitStateRank);
  DamageEachMessage(
      [&](const Transport& transport) {
        return std::make_unique<IntervalJob>(Subject(), &transport);
      },
      [](IntervalJob& job) { return job.Sync(); },
      [&](IntervalJob& job, int /*done*/) {
        EXPECT_EQ(job.Sync(), kRanks);
        EXPECT_EQ(job.Export(onebitStateRank), expected);
      });
}

TEST_P(SyncFaultTest, ASkipThatSomeRanksMissedIsTakenOver) {
  DamageEachMessage(
      [&](const Transport& transport) {
        auto job = std::make_unique<IntervalJob>(Subject(), &transport);
        StepToSync(*job);
        return job;
      },
      [](IntervalJob& job) { return job.BadStep(); },
      [](IntervalJob& job, int done) {
        if (done > 0) {
          EXPECT_EQ(job.x(1), job.x(0));
          EXPECT_EQ(job.MomentumOf(1), job.MomentumOf(0));
        }
        for (int i = 0; i < 7; ++i) job.Step();
        job.Export(onebitStateGlobal);
      });
}

// Later steps assume that momenta are equal: dense segments, a second phase, a state of all ranks.
TEST_P(SyncFaultTest, RanksAgreeBehindASkip) {
  IntervalJob job(Subject(), nullptr);
  StepToSync(job);
  EXPECT_EQ(job.BadStep(), kRanks);
  EXPECT_EQ(job.x(1), job.x(0));
  EXPECT_EQ(job.MomentumOf(1), job.MomentumOf(0));
  EXPECT_EQ(job.MomentumOf(2), job.MomentumOf(0));
  job.Export(onebitStateGlobal);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(onebitOptimizerRewarm(job.Get(rank), ONEBIT_FREEZE_AUTOMATIC), onebitSuccess);
  }
  for (int i = 0; i < 20; ++i) {
    if (job.Step() == onebitStageLocal) continue;
    for (int rank = 1; rank < kRanks; ++rank) {
      ASSERT_EQ(job.x(rank), job.x(0)) << "step " << i << ", rank " << rank;
    }
  }
  job.Export(onebitStateGlobal);
}

INSTANTIATE_TEST_SUITE_P(Variants, SyncFaultTest,
                         ::testing::Values(onebitVariantPaper, onebitVariantDeepSpeed),
                         [](const auto& info) {
                           return info.param == onebitVariantPaper ? "Paper" : "DeepSpeed";
                         });

}  // namespace
}  // namespace onebit::testing
