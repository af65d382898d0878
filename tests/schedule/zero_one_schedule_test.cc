// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of 0/1 Adam in both variants: schedules worked by hand, the sets by their definitions,
// learning rates of zero, and saved states.
#include "schedule/zero_one_schedule.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

using RateOf = std::function<double(uint64_t)>;  // by the number of steps made

double Constant(uint64_t) { return 1e-3; }

std::vector<ZeroOneStep> StepsOf(ZeroOneSchedule& schedule, uint64_t count,
                                 const RateOf& rate = Constant) {
  std::vector<ZeroOneStep> steps;
  for (uint64_t i = 0; i < count; ++i) {
    const double learning_rate = rate(schedule.state().step);
    steps.push_back(schedule.Next(learning_rate));
    schedule.Commit(learning_rate);
  }
  return steps;
}

std::string KindsOf(const std::vector<ZeroOneStep>& steps) {
  std::string kinds;
  for (const ZeroOneStep& step : steps) kinds.push_back(LetterOf(step.kind));
  return kinds;
}

std::string KindsOf(const ZeroOnePolicy& policy, uint64_t count, const RateOf& rate = Constant) {
  ZeroOneSchedule schedule(policy);
  return KindsOf(StepsOf(schedule, count, rate));
}

ZeroOnePolicy Paper(uint64_t freeze, uint64_t kappa, uint64_t scaler, uint64_t clipper) {
  return {.variant = Variant::kPaper,
          .var_freeze_step = freeze,
          .var_update_scaler = kappa,
          .local_step_scaler = scaler,
          .local_step_clipper = clipper,
          .local_step_start = freeze};
}

ZeroOnePolicy DeepSpeed(uint64_t freeze, uint64_t kappa, uint64_t scaler, uint64_t clipper) {
  return {.variant = Variant::kDeepSpeed,
          .var_freeze_step = freeze,
          .var_update_scaler = kappa,
          .local_step_scaler = scaler,
          .local_step_clipper = clipper};
}

// Worked by hand: F at 2-5 (interval 1), 6, 8, 10, 12 (2), 16, 20, 24, 28 (4), 32, 40 (8). Step 41
// is the first above 40, still compresses the gradient, and freezes. Syncs at every step up to 57,
// then at even steps, at multiples of 4 from 76 on and of 8 from 96 on.
TEST(ZeroOneScheduleTest, DeepSpeedWorkedByHand) {
  EXPECT_EQ(KindsOf(DeepSpeed(40, 4, 16, 8), 100),
            "iFFFFF1F1F"
            "1F111F111F"
            "111F111F11"
            "1F1111111F"
            "1uuuuuuuuu"
            "uuuuuuuu.u"
            ".u.u.u.u.u"
            ".u...u...u"
            "...u...u.."
            ".....u....");
}

TEST(ZeroOneScheduleTest, RefreshesAreCountedWithoutMakingThem) {
  for (const ZeroOnePolicy& policy : {Paper(40, 4, 16, 8), Paper(1, 1, 1, 1), Paper(100, 1, 1, 1),
                                      Paper(75, 16, 9, 9), Paper(90, 1000, 9, 9)}) {
    ZeroOneSchedule schedule(policy);
    uint64_t refreshes = 0;
    for (uint64_t t = 0; t < 120; ++t) {
      EXPECT_EQ(schedule.RefreshesBefore(t), refreshes) << t;
      if (schedule.Next(1e-3).refreshes_variance) ++refreshes;
      schedule.Commit(1e-3);
    }
  }
}

TEST(ZeroOneScheduleTest, PaperWorkedByHand) {
  EXPECT_EQ(KindsOf(Paper(40, 4, 16, 8), 100),
            "BBBBB1B1B1"
            "B1B111B111"
            "B111B111B1"
            "111111B111"
            "1111111111"
            "111111.1.1"
            ".1.1.1.1.1"
            ".1...1...1"
            "...1...1.."
            ".....1....");
}

// The configuration of DeepSpeed's own unit test.
TEST(ZeroOneScheduleTest, DeepSpeedWithAnIntervalThatDoublesEveryTime) {
  EXPECT_EQ(KindsOf(DeepSpeed(4, 1, 1, 2), 24), "iF1F1u.u.u.u.u.u.u.u.u.u");
}

TEST(ZeroOneScheduleTest, SchedulesOfTheTrainingOracles) {
  EXPECT_EQ(KindsOf(Paper(12, 2, 8, 4), 40), "BBB1B1B111B111111111.1.1.1.1...1...1...1");
  EXPECT_EQ(KindsOf(DeepSpeed(12, 2, 8, 4), 41), "iFFF1F1F111F1uuuuuuuuu.u.u.u...u...u...u.");
}

// The paper's sets, evaluated one after the other by their definitions.
std::string PaperByDefinition(const ZeroOnePolicy& policy, uint64_t count) {
  std::string kinds(count, '.');
  std::vector<bool> is_refresh(count, false);
  for (uint64_t k = 0, j = 0; k < policy.var_freeze_step && k < count; ++j) {
    is_refresh[k] = true;
    k += static_cast<uint64_t>(std::exp2(j / policy.var_update_scaler));
  }
  int64_t last_sync = -1;
  for (uint64_t t = 0; t < count; ++t) {
    double interval = 1;
    if (t >= policy.local_step_start) {
      interval = std::exp2((t - policy.local_step_start) / policy.local_step_scaler);
      interval = std::min(interval, static_cast<double>(policy.local_step_clipper));
    }
    const bool is_sync = static_cast<double>(static_cast<int64_t>(t) - last_sync) >= interval;
    if (is_sync) last_sync = static_cast<int64_t>(t);
    if (is_sync) kinds[t] = is_refresh[t] ? 'B' : '1';
  }
  return kinds;
}

// DeepSpeed's counters, kept as its optimizer does.
std::string DeepSpeedByCounters(const ZeroOnePolicy& policy, uint64_t count) {
  std::string kinds = "i";
  uint64_t var_interval = 1, var_counter = 0, local_interval = 1, local_counter = 0;
  bool is_frozen = false;
  for (uint64_t s = 2; s <= count; ++s) {
    if (is_frozen) {
      kinds.push_back(s % local_interval == 0 ? 'u' : '.');
      if (++local_counter == policy.local_step_scaler) {
        local_counter = 0;
        local_interval = std::min(policy.local_step_clipper, 2 * local_interval);
      }
    } else {
      const bool is_dense = s % var_interval == 0;
      kinds.push_back(is_dense ? 'F' : '1');
      if (is_dense && ++var_counter == policy.var_update_scaler) {
        var_counter = 0;
        var_interval *= 2;
      }
      is_frozen = s > policy.var_freeze_step;
    }
  }
  return kinds;
}

TEST(ZeroOneScheduleTest, EqualsTheDefinitionsForRandomPolicies) {
  std::mt19937_64 random(20260731);
  const auto draw = [&](uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    ZeroOnePolicy policy = Paper(draw(1, 250), draw(1, 20), draw(1, 60), draw(1, 40));
    policy.local_step_start += draw(0, 50);
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ": " << policy.var_freeze_step << ' '
                 << policy.var_update_scaler << ' ' << policy.local_step_scaler << ' '
                 << policy.local_step_clipper << ' ' << policy.local_step_start);
    ASSERT_EQ(KindsOf(policy, 500), PaperByDefinition(policy, 500));
    policy.variant = Variant::kDeepSpeed;
    ASSERT_EQ(KindsOf(policy, 500), DeepSpeedByCounters(policy, 500));
  }
}

TEST(ZeroOneScheduleTest, FlagsSayWhatTheKindMeans) {
  ZeroOneSchedule paper(Paper(2, 1, 1, 2));
  EXPECT_EQ(StepsOf(paper, 4),
            (std::vector<ZeroOneStep>{
                {.kind = StepKind::kDenseAndCompressed,
                 .refreshes_variance = true,
                 .syncs = true,
                 .ends_interval = true},
                {.kind = StepKind::kDenseAndCompressed,
                 .refreshes_variance = true,
                 .syncs = true,
                 .ends_interval = true},
                {.kind = StepKind::kCompressed, .syncs = true, .ends_interval = true},
                {.kind = StepKind::kLocal}}));
  ZeroOneSchedule deep_speed(DeepSpeed(2, 1, 1, 2));
  EXPECT_EQ(
      StepsOf(deep_speed, 5),
      (std::vector<ZeroOneStep>{
          {.kind = StepKind::kSwallowed, .ends_interval = true},
          {.kind = StepKind::kDense,
           .refreshes_variance = true,
           .feeds_momentum = true,
           .ends_interval = true},
          {.kind = StepKind::kCompressed, .compresses_gradient = true, .ends_interval = true},
          {.kind = StepKind::kSync, .syncs = true, .ends_interval = true, .resets_residuals = true},
          {.kind = StepKind::kLocal}}));
}

TEST(ZeroOneScheduleTest, DenseStepThatFeedsMomentumNeedsNoSync) {
  ZeroOnePolicy policy = Paper(6, 2, 4, 4);
  policy.dense_step_feeds_momentum = true;
  ZeroOneSchedule schedule(policy);
  const std::vector<ZeroOneStep> steps = StepsOf(schedule, 8);
  EXPECT_EQ(KindsOf(steps), "FFF1F111");
  EXPECT_TRUE(steps[0].feeds_momentum && steps[0].refreshes_variance && steps[0].ends_interval);
  EXPECT_FALSE(steps[0].syncs);
}

// After local steps momenta differ between ranks, and a dense average of gradients does not make
// them equal.
TEST(ZeroOneScheduleTest, DenseStepThatFeedsMomentumSyncsWhatIsPending) {
  ZeroOnePolicy policy = Paper(6, 2, 4, 4);
  policy.dense_step_feeds_momentum = true;
  EXPECT_EQ(KindsOf(policy, 8, [](uint64_t t) { return t < 4 ? 0.0 : 1.0; }), "FFF.B111");
}

TEST(ZeroOneScheduleTest, SyncsWaitForARateThatIsNotZero) {
  const auto zero_up_to_3 = [](uint64_t t) { return t < 3 ? 0.0 : 1.0; };
  EXPECT_EQ(KindsOf(Paper(6, 2, 4, 4), 8, zero_up_to_3), "FFF1B111");
  const auto zero_from_7 = [](uint64_t t) { return t < 7 ? 1.0 : 0.0; };
  EXPECT_EQ(KindsOf(Paper(6, 2, 4, 4), 12, zero_from_7), "BBB1B11.....");
  EXPECT_EQ(KindsOf(DeepSpeed(2, 1, 4, 4), 12, zero_from_7), "iF1uuuu.....");
  // One step of the interval with weight is enough.
  const auto only_12 = [](uint64_t t) { return t < 10 || t == 12 ? 1.0 : 0.0; };
  EXPECT_EQ(KindsOf(Paper(2, 1, 4, 4), 20, only_12), "BB1111.1.1...1......");
  // Values that fp32 rounds to zero, or to a subnormal number, have no inverse there.
  const auto tiny_from_7 = [](uint64_t t) { return t < 7 ? 1.0 : 1e-40; };
  EXPECT_EQ(KindsOf(Paper(6, 2, 4, 4), 12, tiny_from_7), "BBB1B11.....");
}

TEST(ZeroOneScheduleTest, TiedIntervalFollowsTheRate) {
  ZeroOnePolicy policy = Paper(4, 16, 1, 6);
  policy.is_rate_tied = true;
  // The interval is 1 while the rate exceeds half its peak.
  EXPECT_EQ(KindsOf(policy, 12, [](uint64_t) { return 0.3; }), "BBBB11111111");
  EXPECT_EQ(KindsOf(policy, 12, [](uint64_t t) { return t < 6 ? 0.3 : 0.151; }), "BBBB11111111");
  EXPECT_EQ(KindsOf(policy, 12, [](uint64_t t) { return t < 6 ? 0.3 : 0.15; }), "BBBB11.1.1.1");
  EXPECT_EQ(KindsOf(policy, 14, [](uint64_t t) { return t < 6 ? 0.3 : 0.075; }), "BBBB11...1...1");
  // An eighth would be 8, but the limit is 6.
  EXPECT_EQ(KindsOf(policy, 18, [](uint64_t t) { return t < 6 ? 8.0 : 1.0; }),
            "BBBB11.....1.....1");
  // During a warm-up the peak grows, and a rate that rises again ends the interval.
  EXPECT_EQ(KindsOf(policy, 12, [](uint64_t t) { return static_cast<double>(t + 1); }),
            "BBBB11111111");
  EXPECT_EQ(KindsOf(policy, 12, [](uint64_t t) { return t == 6 || t == 7 ? 0.25 : 1.0; }),
            "BBBB11..1111");
}

TEST(ZeroOneScheduleTest, LocalStepsMayStartAfterTheFreeze) {
  ZeroOnePolicy policy = Paper(3, 1, 2, 2);
  policy.local_step_start = 6;
  EXPECT_EQ(KindsOf(policy, 14),
            "BB1111"
            "11.1.1.1");
}

TEST(ZeroOneScheduleTest, HugeNumbersDoNotOverflow) {
  constexpr uint64_t kHuge = INT64_MAX;
  EXPECT_EQ(KindsOf(Paper(kHuge, kHuge, kHuge, kHuge), 5), "BBBBB");
  EXPECT_EQ(KindsOf(DeepSpeed(kHuge, kHuge, kHuge, kHuge), 5), "iFFFF");

  for (const Variant variant : {Variant::kPaper, Variant::kDeepSpeed}) {
    // Everything that can double has doubled as often as it can.
    ZeroOnePolicy policy = Paper(kHuge, 1, 1, kHuge);
    policy.variant = variant;
    ZeroOneSchedule schedule(policy);
    ASSERT_TRUE(schedule.SetState({.step = kHuge - 2, .interval_start = kHuge - 2}).ok());
    // Gaps begin at 2^q - 1 in the paper, and at powers of two in DeepSpeed.
    EXPECT_EQ(KindsOf(StepsOf(schedule, 3)), variant == Variant::kPaper ? "111" : "11F");
    policy.var_freeze_step = policy.local_step_start = 3;
    ZeroOneSchedule late(policy);
    ASSERT_TRUE(late.SetState({.step = kHuge - 2, .interval_start = kHuge - 5}).ok());
    // DeepSpeed's second step here is the first multiple of its interval.
    EXPECT_EQ(KindsOf(StepsOf(late, 3)), variant == Variant::kPaper ? "..." : ".u.");
  }
}

TEST(ZeroOneScheduleTest, StateContinuesAsIfUninterrupted) {
  const auto rate = [](uint64_t t) { return t % 7 == 0 ? 0.0 : 1.0 / static_cast<double>(1 + t); };
  for (ZeroOnePolicy policy : {Paper(20, 2, 8, 8), DeepSpeed(20, 2, 8, 8)}) {
    for (const bool is_tied : {false, true}) {
      policy.is_rate_tied = is_tied;
      ZeroOneSchedule whole(policy);
      const std::vector<ZeroOneStep> steps = StepsOf(whole, 100, rate);
      for (uint64_t pause = 0; pause <= 100; ++pause) {
        ZeroOneSchedule first(policy);
        std::vector<ZeroOneStep> resumed = StepsOf(first, pause, rate);
        ZeroOneSchedule second(policy);
        ASSERT_TRUE(second.SetState(first.state()).ok());
        const std::vector<ZeroOneStep> rest = StepsOf(second, 100 - pause, rate);
        resumed.insert(resumed.end(), rest.begin(), rest.end());
        ASSERT_EQ(resumed, steps) << pause;
        ASSERT_EQ(second.state(), whole.state()) << pause;
      }
    }
  }
}

TEST(ZeroOneScheduleTest, ImpossibleStatesAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  ZeroOneSchedule schedule(Paper(4, 1, 1, 2));
  const ZeroOneState good = {.step = 9, .interval_start = 8, .rate_sum = 0.5, .peak_rate = 1};
  ASSERT_TRUE(schedule.SetState(good).ok());
  const std::vector<ZeroOneState> impossible = {
      {.step = 9, .interval_start = 10},
      {.step = UINT64_MAX, .interval_start = UINT64_MAX},
      {.step = 9, .interval_start = 9, .rate_sum = 0.5, .peak_rate = 1},
      {.step = 9, .interval_start = 8, .rate_sum = 0.5, .peak_rate = 0},
      {.step = 9, .interval_start = 8, .rate_sum = -0.5, .peak_rate = 1},
      {.step = 9, .interval_start = 8, .rate_sum = 0, .peak_rate = -1},
      {.step = 9, .interval_start = 8, .rate_sum = kNan, .peak_rate = 1},
      {.step = 9, .interval_start = 8, .rate_sum = 0.5, .peak_rate = kNan},
      {.step = 9, .interval_start = 8, .rate_sum = kInf, .peak_rate = 1},
      {.step = 9, .interval_start = 8, .rate_sum = 0.5, .peak_rate = kInf}};
  for (const ZeroOneState& state : impossible) {
    EXPECT_EQ(schedule.SetState(state).code(), Code::kCorrupt);
    EXPECT_EQ(schedule.state(), good);
  }
}

}  // namespace
}  // namespace onebit
