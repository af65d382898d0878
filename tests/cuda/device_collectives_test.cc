// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on device memory come to the same as on host memory, to the bit: outputs, residuals,
// counters. Over a transport of the host and over NCCL, as calls and as replays of a graph.
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/cuda_memory.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/run_ranks.h"

namespace onebit::testing {
namespace {

std::vector<DeviceRecord> OnHost(const DeviceCase& one, int ranks) {
  std::vector<DeviceRecord> records(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](onebitComm_t comm, int rank) {
    records[static_cast<size_t>(rank)] = RunCase(one, comm, Where::kHost);
  });
  return records;
}

std::vector<DeviceRecord> OnDevices(const DeviceCase& one, int ranks, Over over, Where where) {
  std::vector<DeviceRecord> records(static_cast<size_t>(ranks));
  RunDeviceRanks(over, ranks, [&](onebitComm_t comm, int rank) {
    records[static_cast<size_t>(rank)] = RunCase(one, comm, where);
  });
  return records;
}

void ExpectEqual(const DeviceCase& one, int ranks, Over over, Where where) {
  SCOPED_TRACE(Describe(one) + " over " + NameOf(over) + ", " + std::to_string(ranks) + " ranks");
  const auto expected = OnHost(one, ranks);
  std::vector<DeviceRecord> found;
  ASSERT_NO_THROW(found = OnDevices(one, ranks, over, where));
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(found[rank].outputs, expected[rank].outputs) << "rank " << rank;
    EXPECT_EQ(found[rank].state, expected[rank].state) << "rank " << rank;
    EXPECT_EQ(found[rank].epoch, expected[rank].epoch) << "rank " << rank;
    EXPECT_EQ(found[rank].nonfinite_calls, expected[rank].nonfinite_calls) << "rank " << rank;
  }
}

class DeviceCollectivesTest : public ::testing::TestWithParam<Over> {
 protected:
  static void Expect(const DeviceCase& one, int ranks = 3) {
    ExpectEqual(one, ranks, GetParam(), Where::kDevice);
    if (GetParam() == Over::kNccl) ExpectEqual(one, ranks, GetParam(), Where::kGraph);
  }
};

constexpr onebitDataType_t kTypes[] = {onebitFloat32, onebitFloat16, onebitBfloat16};
constexpr onebitCollective_t kChunked[] = {onebitCollectiveAllReduce, onebitCollectiveReduceScatter,
                                           onebitCollectiveAllGather, onebitCollectiveAllToAll};
constexpr onebitCollective_t kCollectives[] = {
    onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather,
    onebitCollectiveAllToAll, onebitCollectiveAllToAllv};

TEST_P(DeviceCollectivesTest, EveryCollectiveAndModeIsThatOfTheHost) {
  for (const onebitCollective_t collective : kCollectives) {
    for (const onebitMode_t mode : {onebitModeEf, onebitModeSign}) {
      if (mode == onebitModeEf && collective == onebitCollectiveAllToAllv) continue;
      Expect({.collective = collective, .mode = mode, .count = 5000});
    }
    Expect({.collective = collective, .is_dense = true, .count = 5000});
  }
}

TEST_P(DeviceCollectivesTest, EveryElementTypeIsThatOfTheHost) {
  for (const onebitDataType_t type : kTypes) {
    for (const onebitCollective_t collective : kCollectives) {
      const onebitMode_t mode =
          collective == onebitCollectiveAllToAllv ? onebitModeSign : onebitModeEf;
      Expect({.collective = collective, .mode = mode, .type = type, .op = onebitSum, .count = 700});
      Expect({.collective = collective, .is_dense = true, .type = type, .count = 700});
    }
  }
}

TEST_P(DeviceCollectivesTest, ScalesOfTensorsAndOfBlocksAreThoseOfTheHost) {
  for (const int32_t block : {ONEBIT_BLOCK_TENSOR, 64, 192, 4096, 8192}) {
    for (const onebitScaleRule_t rule : {onebitScaleL2, onebitScaleL1}) {
      Expect({.rule = rule, .block = block, .count = 40'000});
      Expect({.collective = onebitCollectiveReduceScatter,
              .rule = rule,
              .block = block,
              .count = 10'000});
    }
  }
}

TEST_P(DeviceCollectivesTest, OneExchangeIsThatOfTheHost) {
  for (const int32_t block : {ONEBIT_BLOCK_TENSOR, 64, 4096}) {
    Expect({.block = block, .count = 1000});  // so small that it takes one
  }
}

TEST_P(DeviceCollectivesTest, MasksAndResidualTypesAreThoseOfTheHost) {
  for (const onebitCollective_t collective : kChunked) {
    Expect({.collective = collective, .has_mask = true, .count = 1003});
  }
  Expect({.residual = onebitBfloat16, .count = 20'001});
  Expect(
      {.residual = onebitBfloat16, .is_transactional = false, .has_mask = true, .count = 20'001});
}

TEST_P(DeviceCollectivesTest, AnyCountAlignmentAndRankCountIsThatOfTheHost) {
  for (const size_t count : {0, 1, 7, 8, 63, 65, 511, 4097}) {
    Expect({.count = count, .shift_elements = count % 4});
    Expect({.is_dense = true, .count = count, .shift_elements = count % 4});
  }
  for (const int ranks : {1, 2, 5}) {
    Expect({.count = 9001}, ranks);
    Expect({.is_dense = true, .count = 9001}, ranks);
  }
}

TEST_P(DeviceCollectivesTest, InPlaceIsThatOfTheHost) {
  for (const onebitCollective_t collective :
       {onebitCollectiveAllReduce, onebitCollectiveReduceScatter, onebitCollectiveAllGather}) {
    Expect({.collective = collective, .count = 3001, .is_in_place = true});
    Expect({.collective = collective, .is_dense = true, .count = 3001, .is_in_place = true});
  }
}

TEST_P(DeviceCollectivesTest, ValuesThatAreNotFiniteAreHandledAsOnTheHost) {
  for (const onebitCollective_t collective : kChunked) {
    for (const bool is_transactional : {true, false}) {
      Expect({.collective = collective,
              .is_transactional = is_transactional,
              .count = 5000,
              .calls = 4,
              .nonfinite_call = 1});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceCollectivesTest,
                         ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing
