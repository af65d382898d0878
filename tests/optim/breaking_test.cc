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

class BreakingTest : public ::testing::TestWithParam<onebitAlgorithm_t> {
 protected:
  BreakingTest() {
    onebitComm_t comm = nullptr;
    onebit::testing::Check(onebitCommInitAll(&comm, 1, nullptr));
    comm_.reset(comm);
    onebitOptimizerConfig_t config = onebit::testing::SubjectOf("", GetParam()).config;
    const Options options = ReadOptions(&config).value();
    auto arithmetic = std::make_unique<BreakingArithmetic>();
    arithmetic_ = arithmetic.get();
    Optimizer::Setup setup{comm,
                           x_.size(),
                           x_.data(),
                           options,
                           SegmentTable::Create(nullptr, 0, x_.size(), 0).value(),
                           std::move(arithmetic)};
    auto made = GetParam() == onebitAlgorithmZeroOneAdam
                    ? ZeroOneAdam::Create(std::move(setup), nullptr)
                    : TwoStage::Create(std::move(setup), nullptr);
    optimizer_ = std::move(made).value();
  }
  ~BreakingTest() override { optimizer_->Drain(); }

  Status Step() {
    std::vector<float> gradient(x_.size(), 0.5f);
    StepOutcome outcome;
    return optimizer_->Step({.gradients = gradient.data(), .learning_rate = 0.01}, &outcome);
  }
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
  std::vector<float> gradient(x_.size(), 0.5f);
  StepOutcome outcome;
  EXPECT_FALSE(optimizer_
                   ->Step({.gradients = gradient.data(), .learning_rate = 0.01, .max_grad_norm = 1},
                          &outcome)
                   .ok());
  arithmetic_->Heal();
  EXPECT_EQ(Export(), before);
  EXPECT_TRUE(Step().ok());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, BreakingTest,
                         ::testing::Values(onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb,
                                           onebitAlgorithmZeroOneAdam));

}  // namespace
}  // namespace onebit::optim
