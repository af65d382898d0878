// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The checks that processes make together on GPUs, made by threads on the stand-ins for CUDA and
// NCCL.
#include "tests/cuda/device_checks.h"

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device_cases.h"
#include "tests/cuda/device_ranks.h"

namespace onebit::testing {
namespace {

void OnRanks(int ranks, const std::function<void(const DeviceRank&)>& check) {
  EXPECT_NO_THROW(RunDeviceRanks(Over::kNccl, ranks, [&](onebitComm_t comm, int rank) {
    check({.comm = comm, .rank = rank, .ranks = ranks});
  }));
}

TEST(DeviceChecksTest, CasesFollowEachOtherOnOneCommunicator) {
  OnRanks(2, [](const DeviceRank& self) {
    for (const auto& cases : {CasesOfEveryCollective(), CasesOfNonfiniteValues(), CasesInPlace()}) {
      for (const DeviceCase& one : cases) {
        CheckAgainstHost(self, one, Where::kDevice);
        CheckAgainstHost(self, one, Where::kGraph);
      }
    }
  });
}

TEST(DeviceChecksTest, MismatchOfTypesIsTold) { OnRanks(3, CheckMismatchOfTypesIsTold); }

TEST(DeviceChecksTest, MismatchOfCountsIsTold) { OnRanks(3, CheckMismatchOfCountsIsTold); }

TEST(DeviceChecksTest, AbortReleasesTheStream) { OnRanks(3, CheckAbortReleasesTheStream); }

TEST(DeviceChecksTest, ReplaysLoseNothing) {
  for (const int ranks : {2, 3}) {
    for (const size_t count : {5'003, 200'003}) {  // one exchange, then two
      OnRanks(ranks, [&](const DeviceRank& self) { CheckReplaysLoseNothing(self, count, 40); });
    }
  }
}

}  // namespace
}  // namespace onebit::testing
