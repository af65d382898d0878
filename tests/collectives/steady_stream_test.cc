// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on a stream neither allocate nor lock, on the caller's thread or the stream's.
#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/comm_group.h"
#include "tests/support/lock_counter.h"

namespace onebit::testing {
namespace {

struct Used {
  uint64_t allocations = 0;
  uint64_t locks = 0;
};

// Runs as a host function, too.
onebitResult_t Sample(void* used) {
  *static_cast<Used*>(used) = {AllocationsOfThisThread(), LocksOfThisThread()};
  return onebitSuccess;
}

TEST(SteadyStreamTest, CallsAllocateNothingAndTakeNoLock) {
  constexpr size_t kRanks = 2;
  CommGroup group(kRanks);
  std::array<UniqueStream, kRanks> streams;
  std::array<UniqueCompressor, kRanks> compressors;
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  std::vector<float> values(1000 * kRanks, 0.5f);
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_EQ(MakeStream(streams[r]), onebitSuccess);
    compressors[r] = NewCompressor(group.comm(static_cast<int>(r)), 1000, onebitFloat32, config);
  }
  const auto reduce = [&](int times) {
    for (int i = 0; i < times; ++i) {
      for (size_t r = 0; r < kRanks; ++r) {
        float* part = values.data() + 1000 * r;
        ASSERT_EQ(onebitAllReduce(part, part, 1000, onebitFloat32, onebitAvg, compressors[r].get(),
                                  group.comm(static_cast<int>(r)), streams[r].get()),
                  onebitSuccess);
      }
    }
  };
  std::array<Used, kRanks> before;
  std::array<Used, kRanks> after;
  reduce(2);
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_EQ(onebitStreamLaunchHostFunc(streams[r].get(), Sample, &before[r]), onebitSuccess);
  }
  Used callers;
  Sample(&callers);
  reduce(20);
  EXPECT_EQ(AllocationsOfThisThread(), callers.allocations);
  EXPECT_EQ(LocksOfThisThread(), callers.locks);
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_EQ(onebitStreamLaunchHostFunc(streams[r].get(), Sample, &after[r]), onebitSuccess);
  }
  for (size_t r = 0; r < kRanks; ++r) {
    ASSERT_EQ(onebitStreamSynchronize(streams[r].get()), onebitSuccess);
    EXPECT_EQ(after[r].allocations, before[r].allocations) << r;
    EXPECT_EQ(after[r].locks, before[r].locks) << r;
  }
}

}  // namespace
}  // namespace onebit::testing
