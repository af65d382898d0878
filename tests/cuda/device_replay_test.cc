// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Replays of graphs, which the library does not see, concurrent with other calls of the library.
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 20'000;

std::string LastError() { return onebitGetLastError(nullptr); }

// An allreduce that was called once and then captured.
class Replayed {
 public:
  Replayed(onebitComm_t comm, int rank)
      : input_(kCount * sizeof(float)), output_(kCount * sizeof(float)) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>((i * 7 + rank) % 11) - 5;
    input_.Write(std::as_bytes(std::span(values)));
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    EXPECT_EQ(MakeCompressor(compressor_, comm, kCount, onebitFloat32, &config), onebitSuccess)
        << LastError();
    Call(comm);
    stream_.Synchronize();
    CudaGraph::Begin(stream_);
    Call(comm);
    graph_ = std::make_unique<CudaGraph>(stream_);
  }

  const CudaStream& stream() const { return stream_; }
  onebitCompressor_t compressor() const { return compressor_.get(); }
  void Replay() const { graph_->Launch(stream_); }
  void DropGraph() { graph_.reset(); }
  std::vector<std::byte> Output() const { return output_.Read(); }
  std::vector<std::byte> State() const { return StateOf(compressor()); }

 private:
  void Call(onebitComm_t comm) const {
    EXPECT_EQ(onebitAllReduce(input_.data(), output_.data(), kCount, onebitFloat32, onebitAvg,
                              compressor(), comm, stream_.handle()),
              onebitSuccess)
        << LastError();
  }

  CudaStream stream_;
  UniqueCompressor compressor_;
  CudaBuffer input_, output_;
  std::unique_ptr<CudaGraph> graph_;
};

// Replays that have not begun count as launched later.
TEST(DeviceReplayTest, ExportAndResetComeBeforeReplaysThatAreHeldUp) {
  RunDeviceRanks(Over::kNccl, 2, [](onebitComm_t comm, int rank) {
    Replayed undisturbed(comm, rank);
    const std::vector<std::byte> first = undisturbed.State();
    const std::vector<std::byte> first_output = undisturbed.Output();
    undisturbed.Replay();
    undisturbed.stream().Synchronize();
    const std::vector<std::byte> second = undisturbed.State();
    const std::vector<std::byte> second_output = undisturbed.Output();
    EXPECT_NE(second_output, first_output);

    // Repeats them from the same initial state.
    EXPECT_EQ(onebitCompressorImport(undisturbed.compressor(), first.data(), first.size()),
              onebitSuccess)
        << LastError();
    {
      const StreamGate gate(undisturbed.stream());
      undisturbed.Replay();
      EXPECT_EQ(undisturbed.State(), first);
    }
    EXPECT_TRUE(IsDoneWithin(undisturbed.stream(), std::chrono::seconds(20)));
    EXPECT_EQ(undisturbed.State(), second);
    EXPECT_EQ(undisturbed.Output(), second_output);
    {
      const StreamGate gate(undisturbed.stream());
      undisturbed.Replay();
      EXPECT_EQ(onebitCompressorReset(undisturbed.compressor()), onebitSuccess) << LastError();
    }
    EXPECT_TRUE(IsDoneWithin(undisturbed.stream(), std::chrono::seconds(20)));
    EXPECT_EQ(undisturbed.Output(), first_output);
    onebitResult_t error = onebitSuccess;
    EXPECT_EQ(onebitCommGetAsyncError(comm, &error), onebitSuccess);
    EXPECT_EQ(error, onebitSuccess) << onebitGetLastError(comm);
  });
}

// A replay has no deadline, because only the application can know that no other rank makes it.
TEST(DeviceReplayTest, AbortReleasesAReplayThatNoOtherRankMakes) {
  std::barrier everybody(2);
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    Replayed replayed(comm, rank);
    everybody.arrive_and_wait();
    if (rank == 0) {
      replayed.Replay();
      EXPECT_FALSE(IsDoneWithin(replayed.stream(), std::chrono::milliseconds(300)));
      EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
      EXPECT_TRUE(IsDoneWithin(replayed.stream(), std::chrono::seconds(20)));
      EXPECT_EQ(onebitCompressorGetStats(replayed.compressor(), nullptr), onebitInvalidArgument);
    }
    everybody.arrive_and_wait();
    replayed.DropGraph();
  });
}

TEST(DeviceReplayTest, DestroyReleasesAReplayThatNoOtherRankMakes) {
  std::barrier everybody(2);
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    onebitComm_t second = nullptr;
    ASSERT_EQ(onebitCommSplit(comm, 0, rank, &second, nullptr), onebitSuccess) << LastError();
    Replayed replayed(second, rank);
    everybody.arrive_and_wait();
    if (rank == 0) {
      replayed.Replay();
      EXPECT_FALSE(IsDoneWithin(replayed.stream(), std::chrono::milliseconds(300)));
      EXPECT_EQ(onebitCommDestroy(second), onebitSuccess);
      EXPECT_TRUE(IsDoneWithin(replayed.stream(), std::chrono::seconds(20)));
    }
    everybody.arrive_and_wait();
    if (rank == 1) {
      EXPECT_EQ(onebitCommDestroy(second), onebitSuccess);
    }
    everybody.arrive_and_wait();
    replayed.DropGraph();
  });
}

}  // namespace
}  // namespace onebit::testing
