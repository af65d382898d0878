// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The sharded optimizer alone: known trajectories, steps that are skipped, parts that are empty.
#include "perf/train_text/sharded_adam.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "perf/common/rank_pool.h"
#include "perf/train_text/model.h"
#include "tests/optim/toy_problem.h"

namespace onebit::train {
namespace {

using onebit::testing::ToyProblem;

constexpr int kSteps = 40;
constexpr double kRate = 0.05;

TrainOptions Options(onebitCodec_t gather, onebitScales_t scales = onebitScalesSegment) {
  TrainOptions options;
  options.optimizer = OptimizerKind::kShardedOneBitAdam;
  options.beta2 = 0.97;
  options.freeze = 12;
  options.gather = gather;
  options.scales = scales;
  return options;
}

/** Runs work(rank, comm) on a thread for each rank. */
void OnRanks(int ranks, const std::function<void(int rank, onebitComm_t comm)>& work) {
  std::vector<UniqueComm> comms(static_cast<size_t>(ranks));
  ASSERT_EQ(MakeComms(comms), onebitSuccess);
  perf::RankPool pool(0, ranks, [&] {
    for (const UniqueComm& comm : comms) onebitCommAbort(comm.get());
  });
  pool.Run([&](int rank) { work(rank, comms[static_cast<size_t>(rank)].get()); });
}

/** A rank's run on a toy problem. */
struct Toy {
  Toy(const ToyProblem& toy_problem, const TrainOptions& options, int run_rank, onebitComm_t comm)
      : problem(toy_problem),
        rank(run_rank),
        tensors({{.name = "x", .rows = static_cast<int>(problem.dimension), .cols = 1}}),
        x(problem.StartPoint()),
        optimizer(options, comm, tensors, x) {}

  /** Makes step t with an element of the gradient replaced, if it is finite otherwise. */
  onebitStepResult_t Step(uint64_t t, double rate = kRate, float first_element = 0) {
    std::vector<float> gradient = problem.Gradient(x, rank, t);
    if (first_element != 0) gradient[0] = first_element;
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    optimizer.Step(gradient.data(), rate, &result);
    return result;
  }

  ToyProblem problem;
  int rank;
  std::vector<Tensor> tensors;
  std::vector<float> x;
  ShardedAdam optimizer;
};

struct Trajectory {
  onebitCodec_t gather;
  onebitScales_t scales;
  int64_t noise_offset;
  double losses[3];  // after steps 13, 20 and 40, in float64, with scales of fp4 rounded to bf16
  double lag;        // largest of all steps
};

TEST(ShardedAdamTest, FollowsTrajectoriesOfAnIndependentSimulation) {
  constexpr auto kUnits = onebitScalesSegment;
  constexpr auto kFused = onebitScalesFused;
  const Trajectory trajectories[] = {
      {onebitCodecSign, kUnits, 0, {11.605752429, 7.5854633933, 3.4742048229}, 0.09209287},
      {onebitCodecSign, kFused, 26, {11.5941802264, 7.6426967873, 3.5438897173}, 0.12292266},
      {onebitCodecFp4, kFused, 17, {11.5889038279, 7.6472600818, 3.4916002646}, 0.01362794}};
  for (const Trajectory& expected : trajectories) {
    double lags[2] = {};
    std::vector<float> ends[2];
    OnRanks(2, [&](int rank, onebitComm_t comm) {
      Toy toy({.noise_offset = expected.noise_offset}, Options(expected.gather, expected.scales),
              rank, comm);
      std::vector<double> losses;
      for (uint64_t t = 1; t <= kSteps; ++t) {
        const onebitStepResult_t result = toy.Step(t);
        EXPECT_EQ(result.stage, t <= 12 ? onebitStageDense : onebitStageCompressed) << t;
        EXPECT_EQ(result.step, t);
        EXPECT_EQ(toy.optimizer.lag() == 0, t <= 12) << t;
        lags[rank] = std::max(lags[rank], toy.optimizer.lag());
        losses.push_back(toy.problem.Loss(toy.x));
      }
      EXPECT_NEAR(losses[13 - 1], expected.losses[0], 1e-4);
      EXPECT_NEAR(losses[20 - 1], expected.losses[1], 1e-4);
      EXPECT_NEAR(losses[40 - 1], expected.losses[2], 1e-4);
      const onebitOptimizerStats_t stats = toy.optimizer.Stats();
      EXPECT_EQ(stats.frozen_at, 12U);
      EXPECT_EQ(stats.compressed_steps, 28U);
      EXPECT_EQ(stats.bytes_sent, toy.optimizer.ExpectedBytes());
      ends[rank] = toy.x;
    });
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_NEAR(std::max(lags[0], lags[1]), expected.lag, 1e-4);
  }
}

TEST(ShardedAdamTest, StepsThatAreNotFiniteChangeNothing) {
  OnRanks(2, [](int rank, onebitComm_t comm) {
    const TrainOptions options = Options(onebitCodecFp4);
    Toy undisturbed({}, options, rank, comm);
    Toy toy({}, options, rank, comm);
    uint64_t skipped = 0;
    for (uint64_t t = 1; t <= 20; ++t) {
      const std::vector<float> before = toy.x;
      const auto expect_skipped = [&](const onebitStepResult_t& result) {
        EXPECT_EQ(result.skipped, 1) << t;
        EXPECT_EQ(result.step, t - 1);
        EXPECT_EQ(toy.x, before);
        EXPECT_EQ(toy.optimizer.Stats().skipped, ++skipped);
      };
      if (t == 5 || t == 16) {
        const float bad = rank == 1 ? std::numeric_limits<float>::quiet_NaN() : 0;
        expect_skipped(toy.Step(t, kRate, bad));
      }
      // The reduce-scatter is finite and is taken back; the all-gather is not.
      if (t == 18) expect_skipped(toy.Step(t, 3e38));
      EXPECT_EQ(toy.Step(t).skipped, 0);
      undisturbed.Step(t);
      ASSERT_EQ(toy.x, undisturbed.x) << t;
    }
  });
}

TEST(ShardedAdamTest, PartsMayBeEmpty) {
  for (const size_t dimension : {size_t{1}, size_t{5}}) {
    std::vector<float> ends[4];
    OnRanks(4, [&](int rank, onebitComm_t comm) {
      Toy toy({.ranks = 4, .dimension = dimension}, Options(onebitCodecFp4), rank, comm);
      const double first = toy.problem.Loss(toy.x);
      for (uint64_t t = 1; t <= kSteps; ++t) toy.Step(t);
      EXPECT_LT(toy.problem.Loss(toy.x), first);
      EXPECT_EQ(toy.optimizer.Stats().bytes_sent, toy.optimizer.ExpectedBytes());
      ends[rank] = toy.x;
    });
    for (const std::vector<float>& end : ends) EXPECT_EQ(end, ends[0]);
  }
}

TEST(ShardedAdamTest, MemoryIsDividedAmongTheRanks) {
  constexpr size_t kDimension = 1 << 14;
  for (const int ranks : {2, 4}) {
    OnRanks(ranks, [&](int rank, onebitComm_t comm) {
      Toy toy({.ranks = ranks, .dimension = kDimension}, Options(onebitCodecFp4), rank, comm);
      for (uint64_t t = 1; t <= 14; ++t) toy.Step(t);
      // Moments, parameters and divisors, and what the next step makes of two of them; for all
      // parts gradients, what all ranks hold, two generations of residuals, and units.
      const size_t part = kDimension / static_cast<size_t>(ranks);
      EXPECT_EQ(toy.optimizer.Stats().state_bytes, 6 * 4 * part + (4 + 4 + 8 + 1) * kDimension);
    });
  }
}

}  // namespace
}  // namespace onebit::train
