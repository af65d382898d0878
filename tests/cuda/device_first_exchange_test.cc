// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A message of the first of two exchanges is damaged on its way to one rank: syncs and optimizers
// fail on all ranks, lose nothing, and repeat the step.
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/placed_optimizer.h"
#include "tests/support/exported_state.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kDamagedRank = 1;

// Set before the library reads its settings.
[[maybe_unused]] const int settings = setenv("ONEBIT_ONE_EXCHANGE_ELEMENTS", "0", 1);

std::string LastError() { return onebitGetLastError(nullptr); }

UniqueComm SuccessorOf(onebitComm_t comm) {
  onebitComm_t next = nullptr;
  Check(onebitCommShrink(comm, nullptr, 0, &next, nullptr, ONEBIT_SHRINK_ABORT));
  return UniqueComm(next);
}

// One rank with several syncs, which sync every other step or less often.
class Syncs {
 public:
  Syncs(onebitComm_t comm, int rank) : rank_(rank), values_(kCount * sizeof(float)) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    onebitCompressor_t compressor = nullptr;
    Check(onebitCompressorCreate(&compressor, comm, kCount, onebitFloat32, &config));
    compressor_.reset(compressor);
    onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
    schedule.warmupSteps = 0;
    schedule.baseInterval = 2;
    onebitSync_t sync = nullptr;
    Check(onebitSyncCreate(&sync, compressor, &schedule));
    sync_.reset(sync);
  }

  onebitCompressor_t compressor() const { return compressor_.get(); }
  onebitResult_t TryStep(int step) {
    std::mt19937 random(static_cast<unsigned>(31 * step + rank_));
    std::vector<float> x(kCount);
    for (float& value : x) value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
    std::vector<std::byte> bytes(kCount * sizeof(float));
    std::memcpy(bytes.data(), x.data(), bytes.size());
    values_.Write(bytes);
    auto* const values = static_cast<float*>(values_.data());
    float weight_sum = 0;
    const onebitResult_t result =
        onebitSyncStep(sync_.get(), values, 1, values, &did_sync_, &weight_sum, stream_.handle());
    stream_.Synchronize();
    return result;
  }
  void Step(int step) { Check(TryStep(step)); }
  bool did_sync() const { return did_sync_ == 1; }
  Blob Export() const { return StateOf(sync_.get()); }

 private:
  static constexpr size_t kCount = 5003;
  const int rank_;
  CudaStream stream_;
  CudaBuffer values_;
  int did_sync_ = -1;
  UniqueCompressor compressor_;
  UniqueSync sync_;
};

TEST(DeviceFirstExchangeTest, NoRankLosesWhatASyncHasAddedUp) {
  constexpr int kSteps = 9;
  std::vector<Blob> expected(kRanks);
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    Syncs syncs(comm, rank);
    for (int step = 0; step < kSteps; ++step) syncs.Step(step);
    expected[static_cast<size_t>(rank)] = syncs.Export();
  });
  std::barrier everybody(kRanks);
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    Syncs syncs(comm, rank);
    int step = 0;
    do {
      syncs.Step(step++);
    } while (step < 3 || !syncs.did_sync());
    syncs.Step(step++);
    ASSERT_FALSE(syncs.did_sync()) << "the next one is a sync";
    const Blob before = syncs.Export();
    everybody.arrive_and_wait();
    if (rank == kDamagedRank) onebitTestNcclDamage(rank, 0);
    everybody.arrive_and_wait();
    EXPECT_NE(syncs.TryStep(step), onebitSuccess) << "rank " << rank;
    EXPECT_THAT(LastError(), HasSubstr("was damaged in transit"));
    EXPECT_EQ(syncs.Export(), before) << "rank " << rank;
    const UniqueComm next = SuccessorOf(comm);
    int source = -1;
    Check(onebitCompressorRebind(syncs.compressor(), next.get(), &source));
    for (; step < kSteps; ++step) syncs.Step(step);
    EXPECT_EQ(syncs.Export(), expected[static_cast<size_t>(rank)]) << "rank " << rank;
    everybody.arrive_and_wait();  // freeing pinned memory may wait for the other ranks' devices
  });
}

TEST(DeviceFirstExchangeTest, NoRankSkipsAStepOfAnOptimizer) {
  constexpr size_t kBefore = 8, kSteps = 11;  // after the freeze
  const PlacedCase one = {.subject = SubjectOf("adam", onebitAlgorithmOneBitAdam),
                          .has_segments = false};
  std::vector<std::vector<std::byte>> expected(kRanks);
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kDevice);
    for (size_t call = 1; call <= kSteps; ++call) optimizer.Step(call);
    expected[static_cast<size_t>(rank)] = optimizer.x().Read();
  });
  std::barrier everybody(kRanks);
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kDevice);
    for (size_t call = 1; call <= kBefore; ++call) optimizer.Step(call);
    everybody.arrive_and_wait();
    if (rank == kDamagedRank) onebitTestNcclDamage(rank, 0);
    everybody.arrive_and_wait();
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    EXPECT_NE(optimizer.TryStep(kBefore + 1, &result), onebitSuccess) << "rank " << rank;
    EXPECT_THAT(LastError(), HasSubstr("was damaged in transit"));
    const UniqueComm next = SuccessorOf(comm);
    int source = -1;
    Check(onebitOptimizerRebind(optimizer.get(), next.get(), &source));
    onebitOptimizerStats_t stats{};
    stats.size = sizeof(stats);
    Check(onebitOptimizerGetStats(optimizer.get(), &stats));
    EXPECT_EQ(stats.step, kBefore) << "rank " << rank;
    for (size_t call = kBefore + 1; call <= kSteps; ++call) optimizer.Step(call);
    EXPECT_EQ(optimizer.x().Read(), expected[static_cast<size_t>(rank)]) << "rank " << rank;
    everybody.arrive_and_wait();
  });
}

}  // namespace
}  // namespace onebit::testing
