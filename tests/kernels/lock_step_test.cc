// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The double in which kernels run in lock step finds the mistakes that it is there for.
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/kernel_table.h"
#include "tests/kernels/lock_step_kernels.h"

namespace onebit::kernels::cuda {
namespace {

constexpr unsigned kCtas = 2;
constexpr unsigned kWarps = kCtas * kWarpsPerCta;

// Runs the kernel with a fault; returns what was reported, or else the sum of the first warp.
std::string Report(Fault fault, uint32_t seed) {
  std::vector<uint32_t> words(32 * kWarps), sums(kWarps);
  try {
    RunFaultyKernel(fault, kCtas, seed, words.data(), sums.data());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  for (const uint32_t sum : sums) EXPECT_EQ(sum, sums[0]);
  return std::to_string(sums[0]);
}

class LockStepTest : public testing::TestWithParam<uint32_t> {};

TEST_P(LockStepTest, AcceptsAKernelWithoutFault) {
  EXPECT_EQ(Report(Fault::kNone, GetParam()), "496");
}

TEST_P(LockStepTest, ReportsLanesAtDifferentCollectives) {
  const std::string report = Report(Fault::kShuffleInBranch, GetParam());
  EXPECT_NE(report.find("divergence: lane 0 of warp "), std::string::npos) << report;
  EXPECT_NE(report.find("is at a shuffle, lane 16 of warp "), std::string::npos) << report;
  EXPECT_NE(report.find("is at a ballot"), std::string::npos) << report;
}

TEST_P(LockStepTest, ReportsALaneThatEndsBeforeACollective) {
  const std::string report = Report(Fault::kEarlyEnd, GetParam());
  EXPECT_NE(report.find("lane 7 of warp "), std::string::npos) << report;
  EXPECT_NE(report.find("has ended"), std::string::npos) << report;
}

TEST_P(LockStepTest, ReportsAReadOfWhatAnotherWarpWrites) {
  const std::string report = Report(Fault::kReadsOtherWarp, GetParam());
  EXPECT_NE(report.find("race: lane "), std::string::npos) << report;
}

TEST_P(LockStepTest, ReportsWarpsThatWriteTheSameWord) {
  const std::string report = Report(Fault::kOverwrites, GetParam());
  EXPECT_NE(report.find(" writes a byte that lane 0 of warp "), std::string::npos) << report;
}

TEST_P(LockStepTest, ReportsAReadOfAnotherLanesWriteWithoutABarrier) {
  const std::string report = Report(Fault::kMissingSync, GetParam());
  EXPECT_NE(report.find("race: lane "), std::string::npos) << report;
}

TEST_P(LockStepTest, ReportsAMisalignedAccess) {
  const std::string report = Report(Fault::kMisalignedWord, GetParam());
  EXPECT_NE(report.find("accesses 4 bytes at an address that 4 does not divide"), std::string::npos)
      << report;
}

TEST_P(LockStepTest, GivesTheLastLaneNoUsefulValueInAShuffleDown) {
  EXPECT_EQ(Report(Fault::kUnspecifiedShuffle, GetParam()), "0");
}

// A launch that was given up leaves nothing behind.
TEST_P(LockStepTest, GoesOnAfterAReport) {
  Report(Fault::kEarlyEnd, GetParam());
  EXPECT_EQ(Report(Fault::kNone, GetParam()), "496");
}

INSTANTIATE_TEST_SUITE_P(Seeds, LockStepTest, testing::Range(0u, 10u));

}  // namespace
}  // namespace onebit::kernels::cuda
