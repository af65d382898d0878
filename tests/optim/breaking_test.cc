// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An arithmetic that breaks while state is being replaced, as a device may: a state that is half
// old and half new must not be used until a checkpoint is loaded.
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/host_arithmetic.h"
#include "optim/two_stage.h"
#include "optim/zero_one_adam.h"
#include "tests/optim/optimizer_job.h"
#include "tests/support/deadlines.h"

namespace onebit::optim {
namespace {

using onebit::testing::Blob;
using ::testing::HasSubstr;

// Test double: the host's arithmetic, which breaks on demand.
class BreakingArithmetic final : public HostArithmetic {
 public:
  void BreakCheck() { breaks_check_ = true; }
  void BreakAwait() { breaks_await_ = true; }
  void Heal() { breaks_check_ = breaks_await_ = false; }

  Status Await(onebitComm_t) override { return breaks_await_ ? Broken() : OkStatus(); }
  Status Check() const override { return breaks_check_ ? Broken() : OkStatus(); }

 private:
  static Status Broken() { return Error(Code::kUnhandledCudaError, "the device broke"); }
  bool breaks_check_ = false;
  bool breaks_await_ = false;
};

std::unique_ptr<Optimizer> MakeBreaking(onebitComm_t comm, const onebitOptimizerConfig_t& config,
                                        std::vector<float>& x, BreakingArithmetic** arithmetic) {
  auto made = std::make_unique<BreakingArithmetic>();
  *arithmetic = made.get();
  const Options options = ReadOptions(&config).value();  // the setup refers to it
  const SegmentTable::Source source{.element_count = x.size(), .parameters = x.data()};
  Optimizer::Setup setup{comm, options, SegmentTable::Create(source, options).value(),
                         std::move(made)};
  auto optimizer = config.algorithm == onebitAlgorithmZeroOneAdam
                       ? ZeroOneAdam::Create(std::move(setup), nullptr)
                       : TwoStage::Create(std::move(setup), nullptr);
  return std::move(optimizer).value();
}

// Makes a step with equal gradients in one buffer.
Status StepOf(Optimizer* optimizer, double max_grad_norm = 0) {
  std::vector<float> gradient(optimizer->count(), 0.5f);
  EXPECT_TRUE(optimizer->gradients().SetBuffer(gradient.data(), kernels::DataType::kF32).ok());
  StepInput input;
  input.learning_rate = 0.01;
  input.max_grad_norm = max_grad_norm;
  StepOutcome outcome;
  Status status = optimizer->Step(input, &outcome);
  optimizer->gradients().Forget();
  return status;
}

class BreakingTest : public ::testing::TestWithParam<onebitAlgorithm_t> {
 protected:
  BreakingTest() {
    onebitComm_t comm = nullptr;
    onebit::testing::Check(onebitCommInitAll(&comm, 1, nullptr));
    comm_.reset(comm);
    const onebitOptimizerConfig_t config = onebit::testing::SubjectOf("", GetParam()).config;
    optimizer_ = MakeBreaking(comm, config, x_, &arithmetic_);
  }
  ~BreakingTest() override { optimizer_->Drain(); }

  Status Step() { return StepOf(optimizer_.get()); }
  // Makes steps of all kinds.
  void StepUntil(uint64_t step) {
    while (optimizer_->step() < step) ASSERT_TRUE(Step().ok());
  }
  Blob Export() {
    Blob blob(optimizer_->StateBytes(StateKind::kOptimizerRank).value());
    EXPECT_TRUE(optimizer_->Export(StateKind::kOptimizerRank, blob).ok());
    return blob;
  }
  void ExpectTorn() {
    arithmetic_->Heal();
    for (const Status& status : {Step(), optimizer_->Sync(), optimizer_->Rewarm(3)}) {
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_THAT(status.text(), HasSubstr("half"));
    }
  }
  void ExpectGoesOnFrom(const Blob& blob) {
    ASSERT_TRUE(optimizer_->Import(blob).ok());
    EXPECT_EQ(Export(), blob);
    EXPECT_TRUE(Step().ok());
  }

  struct CommDeleter {
    void operator()(onebitComm_t comm) const { onebitCommDestroy(comm); }
  };
  std::unique_ptr<std::remove_pointer_t<onebitComm_t>, CommDeleter> comm_;
  std::vector<float> x_ = std::vector<float>(24, 1.0f);
  BreakingArithmetic* arithmetic_ = nullptr;  // the optimizer's
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_P(BreakingTest, AStepThatBreaksInItsUpdateTears) {
  for (const uint64_t step : {2, 7, 12}) {  // dense, compressed; for 0/1 Adam also local
    StepUntil(step);
    const Blob before = Export();
    arithmetic_->BreakCheck();
    const Status status = Step();
    EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
    EXPECT_THAT(status.text(), HasSubstr("the device broke"));
    EXPECT_EQ(optimizer_->step(), step);
    ExpectTorn();
    ExpectGoesOnFrom(before);
  }
}

TEST_P(BreakingTest, AnImportThatBreaksTears) {
  StepUntil(2);
  const Blob early = Export();
  StepUntil(7);
  const Blob late = Export();
  arithmetic_->BreakAwait();
  EXPECT_EQ(optimizer_->Import(early).code(), Code::kUnhandledCudaError);
  ExpectTorn();
  ExpectGoesOnFrom(late);
}

TEST_P(BreakingTest, ASyncThatBreaksTears) {
  StepUntil(7);
  const Blob before = Export();
  arithmetic_->BreakAwait();
  EXPECT_EQ(optimizer_->Sync().code(), Code::kUnhandledCudaError);
  ExpectTorn();
  ExpectGoesOnFrom(before);
}

// If it breaks before anything is replaced, only the step is lost.
TEST_P(BreakingTest, AStepThatBreaksBeforeItsUpdateChangesNothing) {
  StepUntil(7);
  const Blob before = Export();
  arithmetic_->BreakAwait();
  EXPECT_FALSE(StepOf(optimizer_.get(), 1).ok());
  arithmetic_->Heal();
  EXPECT_EQ(Export(), before);
  EXPECT_TRUE(Step().ok());
}

// Two ranks, the first of which breaks.
class BreakingRebindTest : public ::testing::Test {
 protected:
  BreakingRebindTest() {
    const auto config = onebit::testing::SubjectOf("", onebitAlgorithmOneBitAdam).config;
    group_.Run([&](int rank) {
      Rank& mine = ranks_[rank];
      mine.optimizer = MakeBreaking(group_.comm(rank), config, mine.x, &mine.arithmetic);
      EXPECT_TRUE(StepOf(mine.optimizer.get()).ok());
    });
  }
  ~BreakingRebindTest() override {
    for (Rank& rank : ranks_) rank.optimizer->Drain();
  }

  Status ImportOwnState(int rank) {
    Optimizer& optimizer = *ranks_[rank].optimizer;
    Blob blob(optimizer.StateBytes(StateKind::kOptimizerRank).value());
    EXPECT_TRUE(optimizer.Export(StateKind::kOptimizerRank, blob).ok());
    if (rank == 0 && breaks_import_) ranks_[rank].arithmetic->BreakAwait();
    return optimizer.Import(blob);
  }
  void Rebind() {
    group_.Call([&](int rank) {
      onebitComm_t comm = nullptr;
      onebit::testing::Check(onebitCommSplit(group_.comm(rank), 0, 0, &comm, nullptr));
      made_[rank].reset(comm);
      Rank& mine = ranks_[rank];
      if (rank == 0 && breaks_rebind_) mine.arithmetic->BreakAwait();
      const Result<int> source = mine.optimizer->Rebind(comm);
      mine.source = source.ok() ? source.value() : -1;
      return onebitSuccess;
    });
  }

  struct Rank {
    std::vector<float> x = std::vector<float>(24, 1.0f);
    BreakingArithmetic* arithmetic = nullptr;  // the optimizer's
    std::unique_ptr<Optimizer> optimizer;
    int source = -1;
  };
  onebit::testing::CommGroup group_{
      2, {.timeout_ms = onebit::testing::ShortTimeoutMs(), .one_exchange_elements = 0}};
  onebit::UniqueComm made_[2];
  Rank ranks_[2];
  bool breaks_import_ = false;
  bool breaks_rebind_ = false;
};

// Both ranks have made the same steps, but rank 0 holds a partly imported state.
TEST_F(BreakingRebindTest, ATornRankIsNoSource) {
  breaks_import_ = true;
  EXPECT_FALSE(ImportOwnState(0).ok());
  ranks_[0].arithmetic->Heal();
  Rebind();
  EXPECT_EQ(ranks_[0].source, 1);
  EXPECT_EQ(ranks_[1].source, 1);
}

TEST_F(BreakingRebindTest, ARankThatBreaksWhileItTakesTheStateIsTorn) {
  ASSERT_TRUE(ImportOwnState(0).ok());  // resets its count of commits, so it is behind rank 1
  breaks_rebind_ = true;
  Rebind();
  EXPECT_EQ(ranks_[0].source, -1);
  ranks_[0].arithmetic->Heal();
  const Status status = ranks_[0].optimizer->Rewarm(3);
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_THAT(status.text(), HasSubstr("half"));
}

INSTANTIATE_TEST_SUITE_P(Algorithms, BreakingTest,
                         ::testing::Values(onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb,
                                           onebitAlgorithmZeroOneAdam));

}  // namespace
}  // namespace onebit::optim
