// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// From the third step on, collectives allocate nothing and take no lock on any rank.
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/lock_counter.h"

namespace onebit::testing {
namespace {

struct SteadyCase {
  const char* name;
  std::optional<onebitMode_t> mode;  // none: dense
  size_t count;
  int32_t block = 4096;
  CommOptions options = kPatient;
  onebitCollective_t collective = onebitCollectiveAllReduce;
  int levels = 0;
};
std::ostream& operator<<(std::ostream& out, const SteadyCase& c) { return out << c.name; }

struct Used {
  uint64_t allocations = 0;
  uint64_t locks = 0;
};

class SteadyStateTest : public ::testing::TestWithParam<SteadyCase> {};

TEST_P(SteadyStateTest, StepsAllocateNothingAndTakeNoLock) {
  const SteadyCase& c = GetParam();
  constexpr int kRanks = 4;
  CommGroup group(kRanks, c.options);
  std::vector<Used> used(kRanks);
  group.Run([&](int rank) {
    UniqueCompressor compressor;
    if (c.mode) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.mode = *c.mode;
      config.block = c.block;
      config.collective = c.collective;
      config.levels = c.levels;
      compressor = NewCompressor(group.comm(rank), c.count, onebitFloat32, config);
    }
    std::vector<float> values(c.count * SendParts(c.collective, kRanks), 0.5f);
    std::vector<float> received(c.count * ReceiveParts(c.collective, kRanks));
    const bool is_in_place = c.collective == onebitCollectiveAllReduce;
    const ChunkCall call = {.send = values.data(),
                            .receive = is_in_place ? values.data() : received.data(),
                            .count = c.count,
                            .compressor = compressor.get()};
    const auto step = [&] { return MakeCall(c.collective, call, group.comm(rank)); };
    for (int i = 1; i <= 2; ++i) ASSERT_EQ(step(), onebitSuccess);
    const uint64_t allocations = AllocationsOfThisThread();
    const uint64_t locks = LocksOfThisThread();
    onebitResult_t result = onebitSuccess;
    // Every 16th all-gather does more.
    const int last = c.collective == onebitCollectiveAllGather ? 18 : 10;
    for (int i = 3; i <= last && result == onebitSuccess; ++i) result = step();
    used[static_cast<size_t>(rank)] = {AllocationsOfThisThread() - allocations,
                                       LocksOfThisThread() - locks};
    EXPECT_EQ(result, onebitSuccess);
  });
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(used[rank].allocations, 0u) << "rank " << rank;
    EXPECT_EQ(used[rank].locks, 0u) << "rank " << rank;
  }
}

const CommOptions kManySegments{.timeout_ms = 20'000, .segment_elements = 1000};
const CommOptions kThreads{.timeout_ms = 20'000, .segment_elements = 20'000, .compute_threads = 2};

const CommOptions kTwoLevels{.timeout_ms = 20'000,
                             .one_exchange_elements = 0,
                             .two_level_bytes = 0,
                             .segment_elements = 10'000,
                             .compute_threads = 1,
                             .host_ranks = 2};

INSTANTIATE_TEST_SUITE_P(
    Cases, SteadyStateTest,
    ::testing::Values(
        SteadyCase{"DenseSmall", std::nullopt, 100},
        SteadyCase{"DenseLarge", std::nullopt, 200'000},
        SteadyCase{.name = "DenseSegments",
                   .mode = std::nullopt,
                   .count = 100'000,
                   .options = kManySegments},
        SteadyCase{"Sign", onebitModePlain, 50'000}, SteadyCase{"EfSmall", onebitModeEf, 100},
        SteadyCase{"EfLarge", onebitModeEf, 300'000},
        SteadyCase{"EfTensor", onebitModeEf, 50'000, ONEBIT_BLOCK_TENSOR},
        SteadyCase{"EfSegments", onebitModeEf, 100'000, 64, kManySegments},
        SteadyCase{"EfThreads", onebitModeEf, 300'000, 4096, kThreads},
        SteadyCase{"DenseTwoLevels", std::nullopt, 100'000, 4096, kTwoLevels},
        SteadyCase{.name = "EfTwoLevels",
                   .mode = onebitModeEf,
                   .count = 100'000,
                   .options = kTwoLevels,
                   .levels = 2},
        SteadyCase{"ReduceScatterTwoLevels", onebitModeEf, 20'001, 64, kTwoLevels,
                   onebitCollectiveReduceScatter, 2},
        SteadyCase{"AllGatherTwoLevels", onebitModeEf, 20'001, 64, kTwoLevels,
                   onebitCollectiveAllGather, 2},
        SteadyCase{"EfOneExchange", onebitModeEf, 5000, 4096, kPatientOneExchange},
        SteadyCase{"ReduceScatterDense", std::nullopt, 50'001, 4096, kManySegments,
                   onebitCollectiveReduceScatter},
        SteadyCase{"ReduceScatterEf", onebitModeEf, 50'001, 64, kThreads,
                   onebitCollectiveReduceScatter},
        SteadyCase{"AllGatherDense", std::nullopt, 1001, 4096, kPatient, onebitCollectiveAllGather},
        SteadyCase{"AllGatherEf", onebitModeEf, 50'001, 4096, kThreads, onebitCollectiveAllGather},
        SteadyCase{"AllToAllDense", std::nullopt, 1001, 4096, kPatient, onebitCollectiveAllToAll},
        SteadyCase{"AllToAllEf", onebitModeEf, 50'001, 4096, kManySegments,
                   onebitCollectiveAllToAll}),
    [](const auto& info) { return info.param.name; });

// The same for calls that ONEBIT_TRACE records.
TEST(SteadyTraceTest, RecordedStepsAllocateNothingAndTakeNoLock) {
  constexpr int kRanks = 4;
  const std::string file =
      ::testing::TempDir() + "steady_state_test." + std::to_string(getpid()) + ".json";
  CommGroup group(kRanks, kThreads);
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(group.comm(rank)->engine.Trace(file).ok());
  }
  group.Run([&](int rank) {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    constexpr size_t kCount = 300'000;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    std::vector<float> values(kCount, 0.5f);
    const auto step = [&] {
      for (const onebitCompressor_t with : {compressor.get(), onebitCompressor_t{}}) {
        ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                  with, group.comm(rank), nullptr),
                  onebitSuccess);
      }
    };
    for (int i = 1; i <= 2; ++i) step();
    const uint64_t allocations = AllocationsOfThisThread();
    const uint64_t locks = LocksOfThisThread();
    for (int i = 3; i <= 10; ++i) step();
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
  });
  std::filesystem::remove(file);
}

class SteadyCodecTest : public ::testing::TestWithParam<onebitMode_t> {};

TEST_P(SteadyCodecTest, CallsOfEveryCodecAllocateNothingAndTakeNoLock) {
  CommGroup group(3);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    std::vector<UniqueCompressor> compressors;
    for (const onebitCodec_t codec : {onebitCodecFp4, onebitCodecInt8, onebitCodecUint8mm,
                                      onebitCodecInt2, onebitCodecTopk, onebitCodecRandk}) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.codec = codec;
      config.mode = GetParam();
      compressors.push_back(NewCompressor(comm, 20'000, onebitFloat32, config));
    }
    std::vector<float> values(20'000, 0.5f);
    uint64_t allocations = 0, locks = 0;
    for (int step = 1; step <= 10; ++step) {
      if (step == 3) {
        allocations = AllocationsOfThisThread();
        locks = LocksOfThisThread();
      }
      for (const UniqueCompressor& compressor : compressors) {
        onebitAllReduce(values.data(), values.data(), 20'000, onebitFloat32, onebitAvg,
                        compressor.get(), comm, nullptr);
      }
    }
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
    EXPECT_EQ(StatsOf(comm).compressed_calls, 60u);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, SteadyCodecTest, ::testing::Values(onebitModePlain, onebitModeEf),
                         [](const auto& info) {
                           return info.param == onebitModeEf ? "Ef" : "Plain";
                         });

// A ring in a group, and single calls.
TEST(SteadyPairsTest, SendsAndReceivesAllocateNothingAndTakeNoLock) {
  constexpr int kRanks = 3;
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = onebitCollectiveSendRecv;
    config.mode = onebitModePlain;
    config.codec = onebitCodecInt8;
    config.tensorId = 8;
    const UniqueCompressor compressor = NewCompressor(comm, 5000, onebitFloat32, config);
    std::vector<float> sent(5000, 0.5f), received(5000), own(5000);
    uint64_t allocations = 0, locks = 0;
    for (int step = 1; step <= 10; ++step) {
      if (step == 3) {
        allocations = AllocationsOfThisThread();
        locks = LocksOfThisThread();
      }
      onebitGroupStart();
      onebitSend(sent.data(), 5000, onebitFloat32, (rank + 1) % kRanks, nullptr, comm, nullptr);
      onebitRecv(received.data(), 5000, onebitFloat32, (rank + 2) % kRanks, nullptr, comm, nullptr);
      onebitSend(sent.data(), 5000, onebitFloat32, rank, nullptr, comm, nullptr);
      onebitRecv(own.data(), 5000, onebitFloat32, rank, nullptr, comm, nullptr);
      onebitGroupEnd();
      if (rank == 0) {
        onebitSend(sent.data(), 5000, onebitFloat32, 1, compressor.get(), comm, nullptr);
      } else if (rank == 1) {
        onebitRecv(received.data(), 5000, onebitFloat32, 0, compressor.get(), comm, nullptr);
      }
    }
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
    EXPECT_EQ(StatsOf(comm).failed_calls, 0u);
  });
}

// Every call has other counts, none larger than in the first.
TEST(SteadyPairsTest, AllToAllvTakesOnItsCountsWithoutAllocating) {
  constexpr size_t kRanks = 4;
  constexpr size_t kMost = 3000;
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = onebitCollectiveAllToAllv;
    config.mode = onebitModePlain;
    const UniqueCompressor compressor = NewCompressor(comm, 0, onebitFloat32, config);
    std::vector<float> sent(kRanks * kMost, 0.5f), received(kRanks * kMost);
    size_t send_counts[kRanks], receive_counts[kRanks];
    const size_t begins[kRanks] = {0, kMost, 2 * kMost, 3 * kMost};
    uint64_t allocations = 0, locks = 0;
    const auto r = static_cast<size_t>(rank);
    for (size_t step = 1; step <= 20; ++step) {
      if (step == 3) {
        allocations = AllocationsOfThisThread();
        locks = LocksOfThisThread();
      }
      for (size_t peer = 0; peer < kRanks; ++peer) {
        send_counts[peer] = step <= 2 ? kMost : (step * 331 + r * 17 + peer * 53) % kMost;
        receive_counts[peer] = step <= 2 ? kMost : (step * 331 + peer * 17 + r * 53) % kMost;
      }
      for (const onebitCompressor_t codec : {onebitCompressor_t{}, compressor.get()}) {
        onebitAllToAllv(sent.data(), send_counts, begins, received.data(), receive_counts, begins,
                        onebitFloat32, codec, comm, nullptr);
      }
    }
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
    EXPECT_EQ(StatsOf(comm).compressed_calls, 20u);
    EXPECT_EQ(StatsOf(comm).dense_calls, 20u);
  });
}

// Allocations and locks of compute threads count as well.
class SteadyThreadsTest : public ::testing::TestWithParam<bool> {};

TEST_P(SteadyThreadsTest, NoThreadAllocatesOrTakesALock) {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 300'000;
  CommGroup group(kRanks, kThreads);
  std::barrier together(kRanks);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor compressor = NewCompressor(comm, kCount, onebitFloat32, config);
    std::vector<float> values(kCount, 0.5f);
    const auto step = [&] {
      return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                             GetParam() ? compressor.get() : nullptr, comm, nullptr);
    };
    for (int i = 1; i <= 2; ++i) EXPECT_EQ(step(), onebitSuccess);
    EXPECT_EQ(StatsOf(comm).compute_threads, 2u);
    together.arrive_and_wait();
    const uint64_t allocations = AllocationsOfAllThreads();
    const uint64_t locks = LocksOfAllThreads();
    together.arrive_and_wait();
    onebitResult_t result = onebitSuccess;
    for (int i = 3; i <= 10 && result == onebitSuccess; ++i) result = step();
    together.arrive_and_wait();
    const uint64_t new_allocations = AllocationsOfAllThreads() - allocations;
    const uint64_t new_locks = LocksOfAllThreads() - locks;
    together.arrive_and_wait();
    EXPECT_EQ(result, onebitSuccess);
    EXPECT_EQ(new_allocations, 0u);
    EXPECT_EQ(new_locks, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, SteadyThreadsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Ef" : "Dense"; });

// Different collectives in turn, with cached plans.
TEST(SteadyMixTest, CollectivesInTurnAllocateNothingAndTakeNoLock) {
  CommGroup group(3);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor first = NewCompressor(comm, 10'000, onebitFloat32, config);
    const UniqueCompressor second = NewCompressor(comm, 300, onebitFloat32, config);
    std::vector<float> values(10'000, 0.5f);
    uint64_t allocations = 0, locks = 0;
    for (int step = 1; step <= 10; ++step) {
      if (step == 3) {
        allocations = AllocationsOfThisThread();
        locks = LocksOfThisThread();
      }
      onebitAllReduce(values.data(), values.data(), 10'000, onebitFloat32, onebitAvg, first.get(),
                      comm, nullptr);
      onebitAllReduce(values.data(), values.data(), 77, onebitFloat32, onebitSum, nullptr, comm,
                      nullptr);
      onebitBroadcast(values.data(), values.data(), 5000, onebitFloat32, 1, comm, nullptr);
      onebitAllReduce(values.data(), values.data(), 300, onebitFloat32, onebitSum, second.get(),
                      comm, nullptr);
      onebitBarrier(comm, nullptr);
    }
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
    EXPECT_EQ(StatsOf(comm).failed_calls, 0u);
  });
}

// A repeated group finds its merged plan, even if it has more tensors than the engine caches plans.
TEST(SteadyGroupTest, RepeatedGroupsAllocateNothingAndTakeNoLock) {
  const CommOptions kBatches{.timeout_ms = 20'000, .group_elements = 3000};
  constexpr size_t kTensors = 100;
  CommGroup group(3, kBatches);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    std::vector<UniqueCompressor> compressors;
    std::vector<std::vector<float>> values;
    for (size_t i = 0; i < kTensors; ++i) {
      values.emplace_back(40 * i, 0.5f);
      compressors.push_back(i % 2 == 0
                                ? UniqueCompressor()
                                : NewCompressor(comm, values[i].size(), onebitFloat32, config));
    }
    uint64_t allocations = 0, locks = 0;
    for (int step = 1; step <= 10; ++step) {
      if (step == 3) {
        allocations = AllocationsOfThisThread();
        locks = LocksOfThisThread();
      }
      onebitGroupStart();
      for (size_t i = 0; i < kTensors; ++i) {
        onebitAllReduce(values[i].data(), values[i].data(), values[i].size(), onebitFloat32,
                        onebitAvg, compressors[i].get(), comm, nullptr);
      }
      onebitBarrier(comm, nullptr);
      onebitGroupEnd();
    }
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
    EXPECT_EQ(StatsOf(comm).failed_calls, 0u);
    EXPECT_EQ(StatsOf(comm).compressed_calls, 10 * kTensors / 2);
  });
}

TEST(SteadyGroupTest, OneThreadWithAllRanksAllocatesNothingAndTakesNoLock) {
  constexpr size_t kCount = 5000;
  CommGroup group(3);
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  std::vector<UniqueCompressor> compressors;
  std::vector<std::vector<float>> values(3, std::vector<float>(kCount, 0.5f));
  for (int rank = 0; rank < 3; ++rank) {
    compressors.push_back(NewCompressor(group.comm(rank), kCount, onebitFloat32, config));
  }
  uint64_t allocations = 0, locks = 0;
  for (int step = 1; step <= 10; ++step) {
    if (step == 3) {
      allocations = AllocationsOfThisThread();
      locks = LocksOfThisThread();
    }
    onebitGroupStart();
    for (size_t rank = 0; rank < 3; ++rank) {
      const onebitComm_t comm = group.comm(static_cast<int>(rank));
      onebitAllReduce(values[rank].data(), values[rank].data(), kCount, onebitFloat32, onebitAvg,
                      compressors[rank].get(), comm, nullptr);
      onebitBarrier(comm, nullptr);
    }
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
  }
  EXPECT_EQ(AllocationsOfThisThread(), allocations);
  EXPECT_EQ(LocksOfThisThread(), locks);
}

TEST(SteadySyncTest, LocalStepsAndSyncsAllocateNothingAndTakeNoLock) {
  CommGroup group(3);
  group.Run([&](int rank) {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), 10'000, onebitFloat32, config);
    onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
    schedule.baseInterval = 2;
    UniqueSync sync;
    ASSERT_EQ(MakeSync(sync, compressor.get(), &schedule), onebitSuccess);
    std::vector<float> values(10'000, 0.5f);
    uint64_t allocations = 0, locks = 0;
    int syncs = 0;
    for (int step = 1; step <= 12; ++step) {
      if (step == 5) {
        allocations = AllocationsOfThisThread();
        locks = LocksOfThisThread();
      }
      int did_sync = 0;
      float weight_sum = 0;
      onebitSyncStep(sync.get(), values.data(), 1, values.data(), &did_sync, &weight_sum, nullptr);
      syncs += did_sync;
    }
    EXPECT_EQ(AllocationsOfThisThread(), allocations);
    EXPECT_EQ(LocksOfThisThread(), locks);
    EXPECT_EQ(syncs, 6);
  });
}

}  // namespace
}  // namespace onebit::testing
