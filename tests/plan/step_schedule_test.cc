// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which steps of calls that run together may begin, and which inherit the flag of a value that is
// not finite.
#include "exec/step_schedule.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "plan/algorithms.h"
#include "plan/group_plan.h"

namespace onebit {
namespace {

// Two compressed sends of rank 0 to rank 1. The second one waits for the packet of the first, but
// has nothing to do with its values.
class TwoSendsTest : public ::testing::Test {
 protected:
  TwoSendsTest() {
    schedule_.Reserve(group_.plan, calls_.size());
    schedule_.Start({.plan = &group_.plan, .descriptor = {}, .calls = calls_, .digests = {}},
                    /*trace=*/nullptr);
  }

  uint32_t StepOf(StepKind kind, uint32_t call) const {
    const auto& steps = group_.plan.steps;
    const auto found = std::ranges::find_if(
        steps, [&](const Step& step) { return step.kind == kind && step.call == call; });
    EXPECT_NE(found, steps.end());
    return static_cast<uint32_t>(found - steps.begin());
  }

  const std::shared_ptr<const Plan> plan_ =
      std::make_shared<const Plan>(SelectPlan({.collective = Collective::kSendRecv,
                                               .codec = {.kind = CodecKind::kSign, .block = 64},
                                               .root = 1,
                                               .count = 200},
                                              0, HostMap(2), 64));
  const GroupPlan group_ = MergePairs({plan_, plan_}, 0, 2);
  const std::vector<Call> calls_ = std::vector<Call>(2, Call{.plan = plan_.get()});
  StepSchedule schedule_;
};

TEST_F(TwoSendsTest, PacketsForOnePeerAreMadeInTheOrderOfTheirCalls) {
  EXPECT_TRUE(schedule_.MayRun(StepOf(StepKind::kCompress, 0)));
  EXPECT_FALSE(schedule_.MayRun(StepOf(StepKind::kCompress, 1)));
  schedule_.Finish(StepOf(StepKind::kCompress, 0), false);
  EXPECT_TRUE(schedule_.MayRun(StepOf(StepKind::kSend, 0)));
  EXPECT_TRUE(schedule_.MayRun(StepOf(StepKind::kCompress, 1)));
  EXPECT_FALSE(schedule_.MayRun(StepOf(StepKind::kSend, 1)));
}

TEST_F(TwoSendsTest, AFlagReachesTheMessageOfItsCallAlone) {
  schedule_.Finish(StepOf(StepKind::kCompress, 0), true);
  schedule_.Finish(StepOf(StepKind::kCompress, 1), false);
  EXPECT_TRUE(schedule_.is_nonfinite(StepOf(StepKind::kSend, 0)));
  EXPECT_FALSE(schedule_.is_nonfinite(StepOf(StepKind::kSend, 1)));
  EXPECT_FALSE(schedule_.is_finite(0));
  EXPECT_TRUE(schedule_.is_finite(1));
}

}  // namespace
}  // namespace onebit
