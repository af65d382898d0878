// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on device memory give the same outputs, residuals and counters as on host memory, to the
// bit: over a host transport and over NCCL, as calls and as replays of a graph.
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device_case.h"
#include "tests/cuda/device_cases.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

// Set before the stand-in reads it: over NCCL each rank needs a device.
[[maybe_unused]] const int settings = setenv("CUDA_STAND_IN_DEVICES", "8", 0);

std::vector<DeviceRecord> OnDevices(const DeviceCase& one, int ranks, Over over, Where where) {
  std::vector<DeviceRecord> records(static_cast<size_t>(ranks));
  const auto run = [&](onebitComm_t comm, int rank) {
    records[static_cast<size_t>(rank)] = RunCase(one, comm, where);
  };
  RunDeviceRanks(over, ranks, run, one.host_ranks);
  return records;
}

void ExpectEqual(const DeviceCase& one, int ranks, Over over, Where where) {
  SCOPED_TRACE(Describe(one) + " over " + NameOf(over) + ", " + std::to_string(ranks) + " ranks");
  const auto expected = RunCaseOnHost(one, ranks);
  std::vector<DeviceRecord> found;
  ASSERT_NO_THROW(found = OnDevices(one, ranks, over, where));
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(DifferenceOf(found[rank], expected[rank]), "") << "rank " << rank;
  }
}

class DeviceCollectivesTest : public ::testing::TestWithParam<Over> {
 protected:
  static void Expect(const DeviceCase& one, int ranks = 3) {
    ExpectEqual(one, ranks, GetParam(), Where::kDevice);
    if (GetParam() == Over::kNccl) ExpectEqual(one, ranks, GetParam(), Where::kGraph);
  }
};

TEST_P(DeviceCollectivesTest, EveryCollectiveAndModeIsThatOfTheHost) {
  for (const DeviceCase& one : CasesOfEveryCollective()) Expect(one);
}

TEST_P(DeviceCollectivesTest, EveryElementTypeIsThatOfTheHost) {
  for (const DeviceCase& one : CasesOfElementTypes()) Expect(one);
}

TEST_P(DeviceCollectivesTest, EveryDenseTypeAndReductionIsThatOfTheHost) {
  for (const DeviceCase& one : CasesOfDenseTypes()) Expect(one);
}

TEST_P(DeviceCollectivesTest, ScalesOfTensorsAndOfBlocksAreThoseOfTheHost) {
  for (const DeviceCase& one : CasesOfScales()) Expect(one);
}

TEST_P(DeviceCollectivesTest, OneExchangeIsThatOfTheHost) {
  for (const DeviceCase& one : CasesOfOneExchange()) Expect(one);
}

TEST_P(DeviceCollectivesTest, MasksAndResidualTypesAreThoseOfTheHost) {
  for (const DeviceCase& one : CasesOfMasksAndResidualTypes()) Expect(one);
}

TEST_P(DeviceCollectivesTest, AnyCountAlignmentAndRankCountIsThatOfTheHost) {
  for (const DeviceCase& one : CasesOfCountsAndAlignments()) Expect(one);
  for (const int ranks : {1, 2, 5}) {
    Expect({.count = 9001}, ranks);
    Expect({.is_dense = true, .count = 9001}, ranks);
  }
}

TEST_P(DeviceCollectivesTest, InPlaceIsThatOfTheHost) {
  for (const DeviceCase& one : CasesInPlace()) Expect(one);
}

TEST_P(DeviceCollectivesTest, ValuesThatAreNotFiniteAreHandledAsOnTheHost) {
  for (const DeviceCase& one : CasesOfNonfiniteValues()) Expect(one);
}

TEST_P(DeviceCollectivesTest, LowBitCodecsAreThoseOfTheHost) {
  for (const DeviceCase& one : CasesOfLowBitCodecs()) Expect(one);
}

TEST_P(DeviceCollectivesTest, LowBitCodecsWithOptionsAreThoseOfTheHost) {
  for (const DeviceCase& one : CasesOfLowBitOptions()) Expect(one);
  for (const int ranks : {1, 2, 5}) {
    Expect({.codec = onebitCodecInt8, .block = 256, .count = 9001}, ranks);
    Expect({.mode = onebitModePlain, .codec = onebitCodecInt8Stochastic, .block = 64, .count = 901},
           ranks);
  }
}

TEST_P(DeviceCollectivesTest, LowBitBlocksThatAreNotFiniteAreHandledAsOnTheHost) {
  for (const DeviceCase& one : CasesOfLowBitNonfiniteValues()) Expect(one);
}

// Neighbouring cases differ in few things, so a sanitizer sees in each third one what there is to
// see.
constexpr size_t kStep = ONEBIT_HAS_SANITIZER != 0 ? 3 : 1;

TEST_P(DeviceCollectivesTest, TwoLevelsAreThoseOfTheHost) {
  const std::vector<DeviceCase> cases = CasesOfTwoLevels();
  for (size_t k = 0; k < cases.size(); k += kStep) Expect(cases[k], 4);
}

TEST_P(DeviceCollectivesTest, TwoLevelsOfOtherHostsAreThoseOfTheHost) {
  const std::vector<DeviceCase> cases = CasesOfOtherHosts();
  for (size_t k = 0; k < cases.size(); k += kStep) Expect(cases[k], 6);
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceCollectivesTest,
                         ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing
