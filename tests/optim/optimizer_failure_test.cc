// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Steps that fail, and calls at the wrong time.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

// Rank 1 aborts instead of making step `last` + 1. Rank 0 must be as after step `last`.
void ExpectUnchangedByFailure(uint64_t last, double max_grad_norm) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  const ToyProblem problem;
  std::atomic<onebitComm_t> comm_0 = nullptr;  // set before the step that fails
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x = problem.StartPoint();
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, PaperOptimizer(compressor, 4));
    const auto step = [&](uint64_t t) {
      std::vector<float> gradient = problem.Gradient(x, rank, t);
      return onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.05, 1,
                                 max_grad_norm, nullptr, nullptr);
    };
    for (uint64_t t = 1; t <= last; ++t) Check(step(t));
    const onebitResult_t barrier = onebitBarrier(comm, nullptr);  // both have finished step `last`
    if (rank == 1) {
      Check(barrier);
      while (comm_0 == nullptr || !comm_0.load()->comm->is_in_call()) std::this_thread::yield();
      Check(onebitCommAbort(comm));
      return;
    }
    const std::vector<float> m = MomentOf(optimizer.get(), "m", 16);
    const std::vector<float> v = MomentOf(optimizer.get(), "v", 16);
    const std::vector<float> x_before = x;
    comm_0 = comm;
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_NE(step(last + 1), onebitSuccess);
      EXPECT_NE(std::string(onebitGetLastError(nullptr)), "");
    }
    EXPECT_EQ(x, x_before);
    EXPECT_EQ(m, MomentOf(optimizer.get(), "m", 16));
    EXPECT_EQ(v, MomentOf(optimizer.get(), "v", 16));
    EXPECT_EQ(StatsOf(optimizer).step, last);
    EXPECT_EQ(StatsOf(optimizer).skipped, 0u);
  });
}

TEST(OneBitAdamFailureTest, FailedStepChangesNothing) {
  for (const double max_grad_norm : {0.0, 1.0}) {
    ExpectUnchangedByFailure(2, max_grad_norm);  // dense
    ExpectUnchangedByFailure(4, max_grad_norm);  // the first compressed step
    ExpectUnchangedByFailure(7, max_grad_norm);
  }
}

TEST(OneBitAdamFailureTest, SecondThreadIsRefused) {
  std::atomic<bool> was_refused = false;
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x(16, 1.0f);
    std::vector<float> gradient(16, 0.5f);
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, DefaultOptimizer());
    if (rank == 1) {
      while (!was_refused) std::this_thread::yield();  // rank 0 waits for rank 1 inside its step
    }
    std::thread second;
    if (rank == 0) {
      second = std::thread([&] {
        onebitOptimizerStats_t stats{};
        stats.size = sizeof(stats);
        onebitResult_t result = onebitSuccess;
        while (result == onebitSuccess) result = onebitOptimizerGetStats(optimizer.get(), &stats);
        EXPECT_EQ(result, onebitInvalidUsage);
        EXPECT_EQ(onebitOptimizerGetMoment(optimizer.get(), 0, "m", nullptr), onebitInvalidUsage);
        EXPECT_EQ(onebitOptimizerDestroy(optimizer.get()), onebitInvalidUsage);
        was_refused = true;
      });
    }
    // If the second thread is inside its own call at this moment, this call is refused.
    onebitResult_t result = onebitInvalidUsage;
    while (result == onebitInvalidUsage) {
      result = onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.1, 1, 0,
                                   nullptr, nullptr);
    }
    if (rank == 0) second.join();
    Check(result);
  });
}

TEST(OneBitAdamFailureTest, OutlivesItsCommunicator) {
  onebitComm_t comm = nullptr;
  Check(onebitCommInitAll(&comm, 1, nullptr));
  std::vector<float> x(16, 1.0f);
  const OptimizerHandle optimizer = MakeOptimizer(comm, x, DefaultOptimizer());
  Check(onebitCommDestroy(comm));
  std::vector<float> m = MomentOf(optimizer.get(), "m", 16);
  EXPECT_EQ(m, std::vector<float>(16, 0.0f));
  EXPECT_EQ(
      onebitOptimizerStep(optimizer.get(), m.data(), onebitFloat32, 0.1, 1, 0, nullptr, nullptr),
      onebitDetached);
}

}  // namespace
}  // namespace onebit::testing
