// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call over nccl fails on one rank only; calls and replays follow, then a rebind. Nothing of a
// call that any rank has committed may be lost.
#include <barrier>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/exported_state.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kDamagedRank = 1;
constexpr size_t kCount = 40'000;  // two exchanges

std::string LastError() { return onebitGetLastError(nullptr); }

struct OneSidedFailure {
  const char* name;
  size_t count = kCount;
  unsigned messages_before = 0;  // received by the damaged rank before the fault
  bool is_committed = false;     // by the other ranks
  bool is_replayed = false;
};
std::ostream& operator<<(std::ostream& out, const OneSidedFailure& one) { return out << one.name; }

// A rank's state and results after this many committed calls.
struct Outcome {
  std::vector<std::byte> state;
  std::vector<std::byte> next_output;
  bool operator==(const Outcome&) const = default;
};

std::vector<float> InputOf(int rank, int call, size_t count) {
  std::mt19937 random(static_cast<unsigned>(977 * call + rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
  return values;
}

// The calls of one rank. Inputs differ from call to call.
class Caller {
 public:
  Caller(onebitComm_t comm, int rank, size_t count)
      : count_(count), input_(count * sizeof(float)), output_(count * sizeof(float)) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    EXPECT_EQ(MakeCompressor(compressor_, comm, count, onebitFloat32, &config), onebitSuccess)
        << LastError();
    for (int call = 0; call < 6; ++call) {
      const std::vector<float> values = InputOf(rank, call, count);
      sources_.emplace_back(std::as_bytes(std::span(values)));
    }
  }

  const CudaStream& stream() const { return stream_; }
  onebitCompressor_t compressor() const { return compressor_.get(); }

  void Capture(onebitComm_t comm) {
    CudaGraph::Begin(stream_);
    EXPECT_EQ(Enqueue(comm), onebitSuccess) << LastError();
    graph_ = std::make_unique<CudaGraph>(stream_);
  }
  void Call(onebitComm_t comm, int call) {
    CheckCuda(
        cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(input_.data()),
                          reinterpret_cast<CUdeviceptr>(sources_[static_cast<size_t>(call)].data()),
                          count_ * sizeof(float), stream_.get()),
        "cuMemcpyDtoDAsync");
    if (graph_ != nullptr) {
      graph_->Launch(stream_);
    } else {
      EXPECT_EQ(Enqueue(comm), onebitSuccess) << LastError();
    }
  }
  void DropGraph() { graph_.reset(); }

  uint64_t Epoch() const { return Stats().epoch; }
  onebitCompressorStats_t Stats() const {
    onebitCompressorStats_t stats = {.size = sizeof stats};
    EXPECT_EQ(onebitCompressorGetStats(compressor(), &stats), onebitSuccess) << LastError();
    return stats;
  }
  std::vector<std::byte> State() const { return StateOf(compressor()); }
  Outcome OutcomeOf(onebitComm_t comm) {
    Outcome outcome{.state = State(), .next_output = {}};
    Call(comm, 3);
    stream_.Synchronize();
    outcome.next_output = output_.Read();
    return outcome;
  }

 private:
  onebitResult_t Enqueue(onebitComm_t comm) {
    return onebitAllReduce(input_.data(), output_.data(), count_, onebitFloat32, onebitAvg,
                           compressor(), comm, stream_.handle());
  }

  const size_t count_;
  CudaStream stream_;
  UniqueCompressor compressor_;
  CudaBuffer input_, output_;
  std::vector<CudaBuffer> sources_;
  std::unique_ptr<CudaGraph> graph_;
};

std::vector<Outcome> OutcomesWithout(size_t count, int calls) {
  std::vector<Outcome> outcomes(kRanks);
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    Caller caller(comm, rank, count);
    for (int call = 0; call < calls; ++call) caller.Call(comm, call);
    caller.stream().Synchronize();
    outcomes[static_cast<size_t>(rank)] = caller.OutcomeOf(comm);
  });
  return outcomes;
}

class DeviceRebindTest : public ::testing::TestWithParam<OneSidedFailure> {};

TEST_P(DeviceRebindTest, RollsForwardToWhatAnyRankHasCommitted) {
  const OneSidedFailure& failure = GetParam();
  const int committed = failure.is_committed ? 3 : 2;
  const std::vector<Outcome> expected = OutcomesWithout(failure.count, committed);
  std::barrier everybody(kRanks);
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    Caller caller(comm, rank, failure.count);
    caller.Call(comm, 0);
    caller.Call(comm, 1);
    caller.stream().Synchronize();
    if (failure.is_replayed) caller.Capture(comm);
    if (rank == kDamagedRank) onebitTestNcclDamage(rank, failure.messages_before);
    {
      // When these are enqueued only the devices know of the failure.
      StreamGate gate(caller.stream());
      for (const int call : {2, 4, 5}) caller.Call(comm, call);
      everybody.arrive_and_wait();
    }
    EXPECT_TRUE(IsDoneWithin(caller.stream(), std::chrono::seconds(20)));
    EXPECT_NE(AwaitError(comm).result, onebitSuccess);
    EXPECT_THAT(std::string(onebitGetLastError(comm)), HasSubstr("was damaged in transit"));
    // No rank counts it, or a later call, as one with values that are not finite.
    EXPECT_EQ(caller.Stats().nonfinite_calls, 0u);
    onebitCommStats_t stats = {.size = sizeof stats};
    EXPECT_EQ(onebitCommGetStats(comm, &stats), onebitSuccess) << LastError();
    EXPECT_EQ(stats.nonfinite_calls, 0u);
    caller.DropGraph();
    EXPECT_EQ(caller.Epoch(), rank == kDamagedRank ? 2u : static_cast<uint64_t>(committed));

    UniqueComm next;
    const onebitResult_t shrunk = ShrinkComm(next, comm);
    EXPECT_EQ(shrunk, onebitSuccess) << LastError();
    int source = -2;
    const onebitResult_t rebound =
        shrunk != onebitSuccess ? shrunk
                                : onebitCompressorRebind(caller.compressor(), next.get(), &source);
    EXPECT_EQ(rebound, onebitSuccess) << LastError();
    if (rebound == onebitSuccess) {
      EXPECT_EQ(source, 0);
      EXPECT_EQ(caller.Epoch(), static_cast<uint64_t>(committed));
      EXPECT_TRUE(caller.OutcomeOf(next.get()) == expected[static_cast<size_t>(rank)])
          << "rank " << rank;
    }
    everybody.arrive_and_wait();  // freeing pinned memory may wait for the other ranks' devices
  });
}

INSTANTIATE_TEST_SUITE_P(
    Failures, DeviceRebindTest,
    ::testing::Values(
        OneSidedFailure{.name = "InTheFirstExchange"},
        OneSidedFailure{.name = "InTheLastExchange", .messages_before = 2, .is_committed = true},
        OneSidedFailure{.name = "InTheOnlyExchange", .count = 1000, .is_committed = true},
        OneSidedFailure{
            .name = "InAReplay", .messages_before = 3, .is_committed = true, .is_replayed = true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace onebit::testing
