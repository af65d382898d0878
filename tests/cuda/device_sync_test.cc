// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit syncs on device memory give the same results as on host memory, to the bit.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/placed_optimizer.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/exported_state.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 5003;
constexpr int kRanks = 3;

std::string LastError() { return onebitGetLastError(nullptr); }

std::vector<float> InputOf(int step, int rank) {
  std::mt19937 random(4711 + static_cast<uint32_t>(100 * step + rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(random);
  values[7] = -0.0f;
  return values;
}

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The visible state after a step.
struct Seen {
  int did_sync = -1;
  float weight_sum = -1;
  std::vector<std::byte> out;
  friend bool operator==(const Seen&, const Seen&) = default;
};

class PlacedSync {
 public:
  PlacedSync(onebitComm_t comm, Memories memories, bool is_in_place = false)
      : x_(memories, std::vector<std::byte>(kCount * sizeof(float))),
        out_(memories, std::vector<std::byte>(kCount * sizeof(float))),
        is_in_place_(is_in_place) {
    if (memories == Memories::kDevice) stream_.emplace();
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.block = 512;
    if (memories == Memories::kDevice) config.memory = onebitMemoryDevice;
    onebitCompressor_t compressor = nullptr;
    Check(onebitCompressorCreate(&compressor, comm, kCount, onebitFloat32, &config));
    compressor_.reset(compressor);
    onebitSyncSchedule_t schedule = ONEBIT_SYNC_SCHEDULE_INIT;
    schedule.warmupSteps = 2;
    schedule.baseInterval = 3;
    onebitSync_t sync = nullptr;
    Check(onebitSyncCreate(&sync, compressor, &schedule));
    sync_.reset(sync);
  }

  onebitSync_t get() const { return sync_.get(); }
  void reset() { sync_.reset(); }
  onebitCompressor_t compressor() const { return compressor_.get(); }
  const CudaStream& stream() const { return *stream_; }
  float* out() { return static_cast<float*>(out_.data()); }

  onebitResult_t TryStep(const std::vector<float>& x, float weight, Seen* seen) {
    PlacedBuffer& input = is_in_place_ ? out_ : x_;
    input.Write(BytesOf(x));
    const onebitResult_t result =
        onebitSyncStep(get(), static_cast<const float*>(input.data()), weight, out(),
                       &seen->did_sync, &seen->weight_sum, stream_ ? stream_->handle() : nullptr);
    if (stream_) stream_->Synchronize();
    return result;
  }
  Seen Step(const std::vector<float>& x, float weight = 0.5f) {
    Seen seen;
    Check(TryStep(x, weight, &seen));
    if (seen.did_sync == 1) seen.out = out_.Read();
    return seen;
  }
  Blob Export(onebitStateKind_t kind = onebitStateRank) const { return StateOf(get(), kind); }
  void Import(const Blob& blob) { Check(onebitSyncImport(get(), blob.data(), blob.size())); }

 private:
  std::optional<CudaStream> stream_;
  PlacedBuffer x_, out_;
  const bool is_in_place_;
  UniqueCompressor compressor_;
  UniqueSync sync_;
};

// A rank's view of its steps, in one of which the last rank has a NaN.
struct Trace {
  std::vector<Seen> steps;
  std::vector<Blob> states;
  Blob global;
};

Trace RunSteps(onebitComm_t comm, int rank, Memories memories, bool is_in_place, int first_step = 0,
               const Blob* state = nullptr) {
  PlacedSync sync(comm, memories, is_in_place);
  if (state != nullptr) sync.Import(*state);
  Trace trace;
  for (int step = first_step; step < 16; ++step) {
    std::vector<float> x = InputOf(step, rank);
    if (step == 6 && rank == kRanks - 1) x[100] = std::numeric_limits<float>::infinity();
    trace.steps.push_back(sync.Step(x, 0.25f * static_cast<float>(step % 3)));
    if (step != 6 && step != 7) trace.states.push_back(sync.Export());
  }
  trace.global = sync.Export(onebitStateGlobal);
  return trace;
}

std::vector<Trace> RunOnHost(bool is_in_place) {
  std::vector<Trace> traces(kRanks);
  RunRanks(kRanks, [&](onebitComm_t comm, int rank) {
    traces[static_cast<size_t>(rank)] = RunSteps(comm, rank, Memories::kHost, is_in_place);
  });
  return traces;
}

class DeviceSyncTest : public ::testing::TestWithParam<Over> {};

TEST_P(DeviceSyncTest, EqualsTheHost) {
  for (const bool is_in_place : {false, true}) {
    const std::vector<Trace> expected = RunOnHost(is_in_place);
    RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
      const Trace found = RunSteps(comm, rank, Memories::kDevice, is_in_place);
      const Trace& host = expected[static_cast<size_t>(rank)];
      int syncs = 0;
      for (size_t i = 0; i < host.steps.size(); ++i) {
        EXPECT_TRUE(found.steps[i] == host.steps[i]) << "rank " << rank << ", step " << i;
        syncs += host.steps[i].did_sync;
      }
      EXPECT_GT(syncs, 3);
      EXPECT_TRUE(found.states == host.states);
      EXPECT_EQ(found.global, host.global);
    });
  }
}

TEST_P(DeviceSyncTest, StatesGoFromOneMemoryToTheOther) {
  const std::vector<Trace> expected = RunOnHost(false);
  std::vector<Blob> states(kRanks);
  constexpr int kFirst = 10;  // within an interval
  RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
    const Trace& host = expected[static_cast<size_t>(rank)];
    const Blob& before = host.states[kFirst - 3];  // two were skipped
    const Trace found = RunSteps(comm, rank, Memories::kDevice, false, kFirst, &before);
    for (size_t i = 0; i < found.steps.size(); ++i) {
      EXPECT_TRUE(found.steps[i] == host.steps[kFirst + i]) << i;
    }
    states[static_cast<size_t>(rank)] = found.states[1];
  });
  RunRanks(kRanks, [&](onebitComm_t comm, int rank) {
    const Trace& host = expected[static_cast<size_t>(rank)];
    const Trace found = RunSteps(comm, rank, Memories::kHost, false, kFirst + 2,
                                 &states[static_cast<size_t>(rank)]);
    EXPECT_EQ(found.global, host.global);
  });
}

TEST_P(DeviceSyncTest, AStepThatSendsNothingWaitsForNothing) {
  RunDeviceRanks(GetParam(), 2, [](onebitComm_t comm, int rank) {
    PlacedSync sync(comm, Memories::kDevice);
    const auto step = [&](int number) { return sync.Step(InputOf(number, rank)).did_sync; };
    while (step(0) != 1) continue;
    while (step(1) != 1) continue;
    StreamGate gate(sync.stream());
    int did_sync = -1;
    float weight_sum = -1;
    EXPECT_EQ(onebitSyncStep(sync.get(), sync.out(), 1, sync.out(), &did_sync, &weight_sum,
                             sync.stream().handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(did_sync, 0);
    EXPECT_FALSE(sync.stream().IsIdle());
    gate.Open();
    sync.stream().Synchronize();
  });
}

TEST_P(DeviceSyncTest, EndsAfterItsWorkInAThreadWithoutADevice) {
  RunDeviceRanks(GetParam(), 1, [](onebitComm_t comm, int rank) {
    PlacedSync sync(comm, Memories::kDevice);
    for (int step = 0; step < 2; ++step) EXPECT_EQ(sync.Step(InputOf(step, rank)).did_sync, 1);
    StreamGate gate(sync.stream());
    int did_sync = -1;
    float weight_sum = -1;
    Check(onebitSyncStep(sync.get(), sync.out(), 1, sync.out(), &did_sync, &weight_sum,
                         sync.stream().handle()));
    EXPECT_EQ(did_sync, 0);
    std::atomic<bool> is_over{false};
    std::thread ender([&] {
      CUcontext context = nullptr;
      CheckCuda(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
      EXPECT_EQ(context, nullptr);
      sync.reset();
      EXPECT_EQ(onebitTestCudaContextDepth(), 0u);
      is_over = true;
    });
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    EXPECT_FALSE(is_over.load());
    gate.Open();
    ender.join();
  });
}

TEST_P(DeviceSyncTest, RefusesWhatIsElsewhere) {
  RunDeviceRanks(GetParam(), 1, [](onebitComm_t comm, int) {
    PlacedSync sync(comm, Memories::kDevice);
    std::vector<float> host(kCount);
    int did_sync = -1;
    float weight_sum = -1;
    const auto step = [&](const float* x, float* out, onebitStream_t stream) {
      return onebitSyncStep(sync.get(), x, 1, out, &did_sync, &weight_sum, stream);
    };
    EXPECT_EQ(step(host.data(), sync.out(), nullptr), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("x is host memory"));
    EXPECT_EQ(step(sync.out(), host.data(), nullptr), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("out is host memory"));
    onebitStream_t host_stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&host_stream), onebitSuccess);
    EXPECT_EQ(step(sync.out(), sync.out(), host_stream), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("pass a CUDA stream"));
    EXPECT_EQ(onebitStreamDestroy(host_stream), onebitSuccess);
    const CudaStream captured;
    CudaGraph::Begin(captured);
    EXPECT_EQ(step(sync.out(), sync.out(), captured.handle()), onebitInvalidUsage);
    const CudaGraph graph(captured);
    EXPECT_EQ(step(sync.out(), sync.out(), nullptr), onebitSuccess) << LastError();
  });
}

TEST_P(DeviceSyncTest, RanksThatDifferInTheWeightAreToldAndKeepEverything) {
  RunDeviceRanks(GetParam(), 2, [](onebitComm_t comm, int rank) {
    PlacedSync sync(comm, Memories::kDevice);
    sync.Step(InputOf(0, rank));
    const Blob before = sync.Export();
    Seen seen;
    const onebitResult_t result = sync.TryStep(InputOf(1, rank), rank == 0 ? 1.0f : 2.0f, &seen);
    EXPECT_NE(result, onebitSuccess);
    // One rank may learn of the other's error first.
    EXPECT_THAT(LastError(), HasSubstr("weight sum"));
    EXPECT_EQ(sync.Export(), before);
  });
}

TEST_P(DeviceSyncTest, AllocatesNothingInTheSteadyStateAndGivesEverythingBack) {
  RunDeviceRanks(GetParam(), 1, [](onebitComm_t comm, int rank) {
    PlacedSync sync(comm, Memories::kDevice);
    for (int step = 0; step < 8; ++step) sync.Step(InputOf(step, rank));
    onebitTestCudaCounts before, after;
    onebitTestCudaGetCounts(&before);
    int syncs = 0;
    for (int step = 0; step < 8; ++step) {
      int did_sync = -1;
      float weight_sum = -1;
      Check(onebitSyncStep(sync.get(), sync.out(), 1, sync.out(), &did_sync, &weight_sum,
                           sync.stream().handle()));
      syncs += did_sync;
    }
    onebitTestCudaGetCounts(&after);
    EXPECT_GT(syncs, 1);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.frees, before.frees);
  });
  for (const int device : {0, -1}) EXPECT_EQ(onebitTestCudaAllocatedBytes(device), 0u);
  EXPECT_EQ(onebitTestCudaLiveEvents(), 0u);
}

// A sync that fails with its communicator is repeated on the next one.
TEST(DeviceSyncRebindTest, TheStepIsMadeAgainAfterAFailure) {
  std::vector<Trace> expected(2), found(2);
  const auto run = [](onebitComm_t comm, int rank, Memories memories, bool fails) {
    Trace trace;
    PlacedSync sync(comm, memories);
    for (int step = 0; step < 4; ++step) trace.steps.push_back(sync.Step(InputOf(step, rank)));
    onebitComm_t next = nullptr;
    if (fails) {
      if (rank == 1) {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());
        Check(onebitCommAbort(comm));
      } else {
        Seen seen;
        EXPECT_NE(sync.TryStep(InputOf(4, rank), 0.5f, &seen), onebitSuccess);
      }
      Check(onebitCommShrink(comm, nullptr, 0, &next, nullptr, ONEBIT_SHRINK_ABORT));
      int source = -1;
      Check(onebitCompressorRebind(sync.compressor(), next, &source));
    }
    for (int step = 4; step < 9; ++step) trace.steps.push_back(sync.Step(InputOf(step, rank)));
    trace.states.push_back(sync.Export());
    if (next != nullptr) onebitCommDestroy(next);
    return trace;
  };
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    expected[static_cast<size_t>(rank)] = run(comm, rank, Memories::kHost, false);
  });
  RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int rank) {
    found[static_cast<size_t>(rank)] = run(comm, rank, Memories::kDevice, true);
  });
  EXPECT_EQ(expected[0].steps[4].did_sync, 1);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(found[rank].steps == expected[rank].steps);
    EXPECT_EQ(found[rank].states, expected[rank].states);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceSyncTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing
