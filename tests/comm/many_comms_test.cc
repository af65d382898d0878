// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Many communicators: one after the other, and at the same time on separate threads.
#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"
#include "tests/support/run_ranks.h"

namespace onebit::testing {
namespace {

// Makes an ef allreduce of `value` on all ranks, whose mean it must be.
void ExpectMeanOf(onebitComm_t comm, onebitCompressor_t compressor, float value) {
  std::array<float, 100> values;
  values.fill(value);
  ASSERT_EQ(onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitAvg,
                            compressor, comm, nullptr),
            onebitSuccess)
      << onebitGetLastError(nullptr);
  for (const float v : values) ASSERT_FLOAT_EQ(v, value);
}

TEST(ManyCommsTest, MadeAndDestroyedInALoop) {
  for (int round = 0; round < 100; ++round) {
    RunRanks(1 + round % 5, [&](onebitComm_t comm, int) {
      UniqueCompressor compressor;
      ASSERT_EQ(MakeCompressor(compressor, comm, 100, onebitFloat32), onebitSuccess);
      ExpectMeanOf(comm, compressor.get(), 3);
    });
  }
}

TEST(ManyCommsTest, ManyAliveAtOnce) {
  constexpr int kGroups = 40;
  std::vector<std::unique_ptr<CommGroup>> groups;
  for (int i = 0; i < kGroups; ++i) groups.push_back(std::make_unique<CommGroup>(3));
  // One thread per rank goes through all groups, forwards and backwards.
  groups[0]->Run([&](int rank) {
    for (int i = 0; i < 2 * kGroups; ++i) {
      const auto g = static_cast<size_t>(i < kGroups ? i : 2 * kGroups - 1 - i);
      ExpectMeanOf(groups[g]->comm(rank), nullptr, static_cast<float>(i));
    }
  });
  // Any order of destruction must work.
  std::shuffle(groups.begin(), groups.end(), std::mt19937(7501));
  while (!groups.empty()) groups.pop_back();
}

TEST(ManyCommsTest, GroupsOnDifferentThreadsDoNotMeet) {
  std::vector<std::jthread> drivers;
  for (int g = 0; g < 4; ++g) {
    drivers.emplace_back([g] {
      CommGroup group(2 + g % 2, g < 2 ? kPatient : kPatientOneExchange);
      group.Run([&](int rank) {
        onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
        config.mode = g % 2 == 0 ? onebitModeEf : onebitModePlain;
        const UniqueCompressor compressor =
            NewCompressor(group.comm(rank), 100, onebitFloat32, config);
        for (int call = 0; call < 200; ++call) {
          ExpectMeanOf(group.comm(rank), compressor.get(), static_cast<float>(g + 1));
          ExpectMeanOf(group.comm(rank), nullptr, static_cast<float>(g + 1));
        }
      });
    });
  }
}

TEST(ManyCommsTest, ErrorOfOneGroupLeavesOthersAlone) {
  CommGroup broken(2);
  CommGroup sound(2);
  onebitCommAbort(broken.comm(0));
  for (const Outcome& outcome :
       sound.Call([&](int rank) { return onebitBarrier(sound.comm(rank), nullptr); })) {
    EXPECT_EQ(outcome.result, onebitSuccess);
  }
}

TEST(ManyCommsTest, LargeGroupWorks) {
  constexpr int kRanks = 64;
  RunRanks(kRanks, [=](onebitComm_t comm, int rank) {
    int count = 0, user_rank = -1;
    EXPECT_EQ(onebitCommCount(comm, &count), onebitSuccess);
    EXPECT_EQ(onebitCommUserRank(comm, &user_rank), onebitSuccess);
    EXPECT_EQ(count, kRanks);
    EXPECT_EQ(user_rank, rank);
    ExpectMeanOf(comm, nullptr, 2);
    UniqueCompressor compressor;
    ASSERT_EQ(MakeCompressor(compressor, comm, 100, onebitFloat32), onebitSuccess);
    ExpectMeanOf(comm, compressor.get(), 2);
  });
}

}  // namespace
}  // namespace onebit::testing
