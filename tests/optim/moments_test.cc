// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Moments of an optimizer by name, read and written one segment at a time.
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/optimizer_job.h"

namespace onebit::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> Read(onebitOptimizer_t optimizer, size_t segment, const char* name,
                        size_t count) {
  std::vector<float> values(count);
  Check(onebitOptimizerGetMoment(optimizer, segment, name, values.data()));
  return values;
}

class MomentsTest : public ::testing::TestWithParam<OptimizerSubject> {
 protected:
  // The names of the algorithm's moments.
  static std::vector<std::string> Names() {
    const onebitOptimizerConfig_t& config = GetParam().config;
    if (config.algorithm == onebitAlgorithmZeroOneAdam) return {"m", "v", "s", "x_sync"};
    const bool has_fresh_variance =
        config.algorithm == onebitAlgorithmOneBitLamb && config.freezeStep != ONEBIT_FREEZE_NEVER;
    return has_fresh_variance ? std::vector<std::string>{"m", "v", "w"}
                              : std::vector<std::string>{"m", "v"};
  }
};

TEST_P(MomentsTest, SegmentsAreRunsOfAllElements) {
  RunRanks(2, [](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(GetParam(), comm, rank);
    optimizer.StepUntil(1, 7);
    const std::vector<size_t>& counts = GetParam().counts;
    for (const std::string& name : Names()) {
      const std::vector<float> all =
          Read(optimizer.get(), ONEBIT_ALL_SEGMENTS, name.c_str(), GetParam().count());
      size_t begin = 0;
      for (size_t i = 0; i < counts.size(); ++i) {
        const auto first = all.begin() + static_cast<ptrdiff_t>(begin);
        const std::vector<float> expected(first, first + static_cast<ptrdiff_t>(counts[i]));
        EXPECT_EQ(Read(optimizer.get(), i, name.c_str(), counts[i]), expected) << name << i;
        begin += counts[i];
      }
    }
  });
}

TEST_P(MomentsTest, AreReadAsTheyWereWritten) {
  RunRanks(2, [](onebitComm_t comm, int rank) {
    const OptimizerSubject& subject = GetParam();
    OptimizerRank from(subject, comm, rank), to(subject, comm, rank);
    from.StepUntil(1, 7);
    for (const std::string& name : Names()) {
      for (size_t i = 0; i < subject.counts.size(); ++i) {
        const std::vector<float> values = Read(from.get(), i, name.c_str(), subject.counts[i]);
        Check(onebitOptimizerSetMoment(to.get(), i, name.c_str(), values.data()));
        EXPECT_EQ(Read(to.get(), i, name.c_str(), subject.counts[i]), values);
      }
    }
    to.StepUntil(1, 7);
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, MomentsTest, ::testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

// In the dense stage parameters and moments are the whole state, but for the number of steps.
TEST(MomentsMoveTest, AnOptimizerGoesOnWithThoseOfAnother) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank from(subject, comm, rank), to(subject, comm, rank);
    from.StepUntil(1, 2);
    to.x() = from.x();
    for (const char* name : {"m", "v"}) {
      const std::vector<float> values = MomentOf(from.get(), name, subject.count());
      Check(onebitOptimizerSetMoment(to.get(), ONEBIT_ALL_SEGMENTS, name, values.data()));
    }
    from.Step(3);
    to.Step(3);
    EXPECT_EQ(from.x(), to.x());
    EXPECT_EQ(MomentOf(from.get(), "v", subject.count()), MomentOf(to.get(), "v", subject.count()));
  });
}

// A frozen variance that was replaced gets masks of its own: elements of v = 0 move no more.
TEST(MomentsFreezeTest, ANewVarianceHasNewMasks) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  subject.config.weightDecay = 0;
  subject.counts = {16};
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    optimizer.StepUntil(1, 6);  // frozen after 4
    std::vector<float> v = MomentOf(optimizer.get(), "v", 16);
    v[3] = 0;
    Check(onebitOptimizerSetMoment(optimizer.get(), 0, "v", v.data()));
    const std::vector<float> before = optimizer.x();
    optimizer.Step(7);
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(optimizer.x()[i] != before[i], i != 3) << i;
  });
}

TEST(MomentsArgumentsTest, AreChecked) {
  const OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    const OptimizerRank optimizer(subject, comm, rank);
    std::vector<float> values(25, 1.0f);
    const auto expect_invalid = [](onebitResult_t result, const std::string& text) {
      EXPECT_EQ(result, onebitInvalidArgument) << text;
      EXPECT_THAT(std::string(onebitGetLastError(nullptr)), HasSubstr(text));
    };
    const auto set = [&](size_t segment, const char* name, const float* from) {
      return onebitOptimizerSetMoment(optimizer.get(), segment, name, from);
    };
    expect_invalid(onebitOptimizerGetMoment(nullptr, 0, "m", values.data()), "optimizer");
    expect_invalid(onebitOptimizerGetMoment(optimizer.get(), 0, nullptr, values.data()), "name");
    expect_invalid(onebitOptimizerGetMoment(optimizer.get(), 0, "m", nullptr), "values");
    expect_invalid(set(3, "m", values.data()), "segment is 3, but there are 3");
    expect_invalid(set(0, "w", values.data()), "the moments of this 1-bit adam are \"m\" \"v\"");
    Check(onebitOptimizerGetMoment(optimizer.get(), 1, "m", nullptr));  // an empty segment
    values[8] = std::numeric_limits<float>::infinity();
    expect_invalid(set(0, "m", values.data()), "element 8 of moment \"m\" is inf");
    values[8] = -1;
    expect_invalid(set(0, "v", values.data()), "not negative");
    EXPECT_THAT(MomentOf(optimizer.get(), "v", 25), Each(0.0f));
    Check(set(0, "m", values.data()));
    EXPECT_EQ(MomentOf(optimizer.get(), "m", 25)[8], -1);
  });
}

}  // namespace
}  // namespace onebit::testing
