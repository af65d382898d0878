// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The C++ header: handles own what they create, free it, and stay empty if creation fails.
#include "onebit/onebit.hpp"

#include <array>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

TEST(OnebitHppTest, MakesOneCommPerElement) {
  std::array<UniqueComm, 3> comms;
  ASSERT_EQ(MakeComms(comms), onebitSuccess);
  for (int expected_rank = 0; expected_rank < 3; ++expected_rank) {
    int rank = -1;
    EXPECT_EQ(onebitCommUserRank(comms[expected_rank].get(), &rank), onebitSuccess);
    EXPECT_EQ(rank, expected_rank);
  }
}

TEST(OnebitHppTest, LeavesCommsAloneOnFailure) {
  std::array<UniqueComm, 2> comms;
  ASSERT_EQ(MakeComms(comms), onebitSuccess);
  const onebitComm_t before = comms[0].get();
  EXPECT_EQ(MakeComms(std::span(comms).first(0)), onebitInvalidArgument);
  EXPECT_EQ(comms[0].get(), before);
}

TEST(OnebitHppTest, JoinsById) {
  onebitUniqueId id;
  ASSERT_EQ(onebitGetUniqueId(&id), onebitSuccess);
  UniqueComm comm;
  ASSERT_EQ(JoinComm(comm, 1, id, 0), onebitSuccess) << onebitGetLastError(nullptr);
  EXPECT_EQ(onebitBarrier(comm.get(), nullptr), onebitSuccess);
}

TEST(OnebitHppTest, LeavesCommAloneWhenItCannotJoin) {
  UniqueComm comm;
  ASSERT_EQ(MakeComms({&comm, 1}), onebitSuccess);
  const onebitComm_t before = comm.get();
  EXPECT_EQ(JoinComm(comm, 2, onebitUniqueId{}, 0), onebitInvalidArgument);
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.size = 1;
  EXPECT_EQ(JoinComm(comm, 1, onebitUniqueId{}, 0, &config), onebitInvalidArgument);
  EXPECT_EQ(comm.get(), before);
}

TEST(OnebitHppTest, SplitsAndShrinks) {
  UniqueComm comm;
  ASSERT_EQ(MakeComms({&comm, 1}), onebitSuccess);
  UniqueComm made;
  ASSERT_EQ(SplitComm(made, comm.get(), 0, 0), onebitSuccess) << onebitGetLastError(nullptr);
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(SplitComm(made, comm.get(), ONEBIT_SPLIT_NOCOLOR, 0), onebitSuccess);
  EXPECT_EQ(made, nullptr);
  const int self = 0;
  EXPECT_EQ(ShrinkComm(made, comm.get(), {&self, 1}), onebitInvalidUsage);
  ASSERT_EQ(ShrinkComm(made, comm.get()), onebitSuccess) << onebitGetLastError(nullptr);
  EXPECT_EQ(onebitBarrier(made.get(), nullptr), onebitSuccess);
  EXPECT_EQ(onebitBarrier(comm.get(), nullptr), onebitAborted);
}

TEST(OnebitHppTest, CompressorMayOutliveItsComm) {
  UniqueCompressor compressor;
  {
    UniqueComm comm;
    ASSERT_EQ(MakeComms({&comm, 1}), onebitSuccess);
    ASSERT_EQ(MakeCompressor(compressor, comm.get(), 100, onebitFloat32), onebitSuccess);
  }
  onebitCompressorStats_t stats = {};
  stats.size = sizeof(stats);
  EXPECT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess);
}

TEST(OnebitHppTest, LeavesCompressorAloneOnFailure) {
  UniqueComm comm;
  ASSERT_EQ(MakeComms({&comm, 1}), onebitSuccess);
  UniqueCompressor compressor;
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.block = 1;
  EXPECT_EQ(MakeCompressor(compressor, comm.get(), 100, onebitFloat32, &config),
            onebitInvalidArgument);
  EXPECT_EQ(compressor, nullptr);
}

TEST(OnebitHppTest, ExplainsAnError) {
  const onebitResult_t result = MakeComms({});
  ASSERT_NE(result, onebitSuccess);
  const std::string text = Explain(result);
  EXPECT_TRUE(text.starts_with(onebitGetErrorString(result))) << text;
  EXPECT_GT(text.size(), std::string(onebitGetErrorString(result)).size() + 2) << text;
  EXPECT_EQ(Explain(onebitSuccess), onebitGetErrorString(onebitSuccess));
}

TEST(OnebitHppTest, SavesAndLoadsStates) {
  UniqueComm comm;
  ASSERT_EQ(MakeComms({&comm, 1}), onebitSuccess);
  UniqueCompressor compressor;
  ASSERT_EQ(MakeCompressor(compressor, comm.get(), 100, onebitFloat32), onebitSuccess);
  for (const auto kind : {onebitStateRank, onebitStateGlobal}) {
    std::vector<std::byte> state;
    ASSERT_EQ(ExportState(state, compressor.get(), kind), onebitSuccess);
    EXPECT_GE(state.size(), 800u);
    EXPECT_EQ(ImportState(compressor.get(), state), onebitSuccess);
    state.pop_back();
    EXPECT_EQ(ImportState(compressor.get(), state), onebitCorrupt);
  }
}

TEST(OnebitHppTest, MakesASync) {
  UniqueComm comm;
  ASSERT_EQ(MakeComms({&comm, 1}), onebitSuccess);
  UniqueCompressor compressor;
  ASSERT_EQ(MakeCompressor(compressor, comm.get(), 100, onebitFloat32), onebitSuccess);
  UniqueSync sync;
  ASSERT_EQ(MakeSync(sync, compressor.get()), onebitSuccess);
  std::vector<std::byte> state;
  EXPECT_EQ(ExportState(state, sync.get(), onebitStateRank), onebitSuccess);
  EXPECT_EQ(ImportState(sync.get(), state), onebitSuccess);
  const onebitSync_t before = sync.get();
  EXPECT_EQ(MakeSync(sync, nullptr), onebitInvalidArgument);
  EXPECT_EQ(sync.get(), before);
}

TEST(OnebitHppTest, LeavesStateAloneOnFailure) {
  std::vector<std::byte> state(3);
  EXPECT_EQ(ExportState(state, onebitCompressor_t{}, onebitStateRank), onebitInvalidArgument);
  EXPECT_EQ(state.size(), 3u);
}

}  // namespace
}  // namespace onebit
