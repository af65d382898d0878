// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators that the stand-in for NCCL makes from others, and its count of bytes. Ranks are
// threads; tests/preload has processes.
#include <gtest/gtest.h>

#include <functional>

#include "tests/nccl/ranks.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

constexpr int kWorld = 4;

// Runs `body` on each rank with a communicator of all of them.
void RunWorld(const std::function<void(int rank, ncclComm_t world)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  RunThreads(kWorld, [&](int rank) {
    const UseDevice device(rank);
    ncclComm_t world = nullptr;
    ASSERT_EQ(ncclCommInitRank(&world, kWorld, id, rank), ncclSuccess);
    body(rank, world);
    EXPECT_EQ(ncclCommDestroy(world), ncclSuccess);
  });
}

int RankIn(ncclComm_t comm) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
  return rank;
}

// The sum of a number of each rank.
int Sum(ncclComm_t comm, int number) {
  const Stream stream;
  Buffer buffer(sizeof number);
  buffer.Set(std::vector<int>{number}, stream);
  EXPECT_EQ(ncclAllReduce(buffer.at(0), buffer.at(0), 1, ncclInt32, ncclSum, comm, stream),
            ncclSuccess);
  stream.Await();
  return buffer.Read<int>(stream)[0];
}

TEST(StandInSplitTest, ColorsMakeGroupsAndKeysTheirOrder) {
  RunWorld([](int rank, ncclComm_t world) {
    for (int round = 0; round < 3; ++round) {
      ncclComm_t part = nullptr;
      ASSERT_EQ(ncclCommSplit(world, rank % 2, -rank, &part, nullptr), ncclSuccess);
      int ranks = 0;
      EXPECT_EQ(ncclCommCount(part, &ranks), ncclSuccess);
      EXPECT_EQ(ranks, 2);
      EXPECT_EQ(RankIn(part), rank < 2 ? 1 : 0);
      EXPECT_EQ(Sum(part, rank), rank % 2 == 0 ? 0 + 2 : 1 + 3);
      EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    }
    EXPECT_EQ(Sum(world, rank), 0 + 1 + 2 + 3);
  });
}

TEST(StandInSplitTest, ARankWithoutAColorIsInNoGroup) {
  RunWorld([](int rank, ncclComm_t world) {
    ncclComm_t part = world;
    ASSERT_EQ(ncclCommSplit(world, rank == 1 ? -1 : 7, 0, &part, nullptr), ncclSuccess);
    EXPECT_EQ(part == nullptr, rank == 1);
    if (part == nullptr) return;
    EXPECT_EQ(Sum(part, rank), 0 + 2 + 3);
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

TEST(StandInSplitTest, RanksCanBeLeftOut) {
  RunWorld([](int rank, ncclComm_t world) {
    if (rank == 1) return;
    int excluded[] = {1};
    ncclComm_t rest = nullptr;
    ASSERT_EQ(ncclCommShrink(world, excluded, 1, &rest, nullptr, 0), ncclSuccess);
    EXPECT_EQ(RankIn(rest), rank == 0 ? 0 : rank - 1);
    EXPECT_EQ(Sum(rest, rank), 0 + 2 + 3);
    EXPECT_EQ(ncclCommDestroy(rest), ncclSuccess);
  });
}

TEST(StandInSplitTest, BytesAreCountedAsRingsSendThem) {
  const uint64_t before = onebitTestNcclWireBytes();
  RunWorld([](int, ncclComm_t world) {
    constexpr size_t kBytes = 1000;
    const Stream stream;
    const Buffer buffer(kWorld * kBytes);
    void* const data = buffer.at(0);
    ncclAllReduce(data, data, kBytes, ncclInt8, ncclSum, world, stream);      // 1500 from each rank
    ncclReduceScatter(data, data, kBytes, ncclInt8, ncclSum, world, stream);  // 3000
    ncclAllGather(data, data, kBytes, ncclInt8, world, stream);               // 3000
    ncclBroadcast(data, data, kBytes, ncclInt8, 0, world, stream);            // 1000 from rank 0
    stream.Await();
  });
  EXPECT_EQ(onebitTestNcclWireBytes() - before, kWorld * 7500u + 1000u);
}

}  // namespace
}  // namespace onebit::testing
