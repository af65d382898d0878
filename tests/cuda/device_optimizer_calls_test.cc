// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of optimizers on devices: what they refuse and wait for, states that move from one memory
// to another, and the consequences of failures.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/device_ranks.h"
#include "tests/cuda/placed_optimizer.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

std::string LastError() { return onebitGetLastError(nullptr); }

PlacedCase AdamCase() { return {.subject = SubjectOf("adam", onebitAlgorithmOneBitAdam)}; }
PlacedCase ZeroOneCase() { return {.subject = SubjectOf("zero_one", onebitAlgorithmZeroOneAdam)}; }
std::vector<PlacedCase> OneOfEach() {
  return {AdamCase(), {.subject = SubjectOf("lamb", onebitAlgorithmOneBitLamb)}, ZeroOneCase()};
}

// Lets all ranks meet repeatedly without a collective.
class RankBarrier {
 public:
  explicit RankBarrier(int ranks) : ranks_(ranks) {}
  void Wait() {
    const int mine = arrived_.fetch_add(1) / ranks_;
    while (arrived_.load() / ranks_ <= mine) std::this_thread::yield();
  }

 private:
  const int ranks_;
  std::atomic<int> arrived_{0};
};

class DeviceOptimizerCallsTest : public ::testing::TestWithParam<Over> {
 protected:
  static void Run(int ranks, const std::function<void(onebitComm_t, int)>& body) {
    RunDeviceRanks(GetParam(), ranks, body);
  }
};

// ---------------------------------------------------------------------------------------- states

// A training that changes its memory twice ends like one that stays on the host.
TEST_P(DeviceOptimizerCallsTest, StatesGoFromOneMemoryToTheOther) {
  constexpr int kRanks = 2;
  for (const PlacedCase& one : OneOfEach()) {
    SCOPED_TRACE(Describe(one));
    std::vector<std::vector<PlacedStep>> expected(kRanks);
    std::vector<std::vector<Blob>> host_states(kRanks);
    RunRanks(kRanks, [&](onebitComm_t comm, int rank) {
      PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kHost);
      const auto r = static_cast<size_t>(rank);
      for (size_t call = 1; call <= 12; ++call) {
        expected[r].push_back(optimizer.Step(call));
        host_states[r].push_back(optimizer.Export());
      }
    });
    std::vector<Blob> device_states(kRanks);
    Run(kRanks, [&](onebitComm_t comm, int rank) {
      const auto r = static_cast<size_t>(rank);
      PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kDevice);
      Check(onebitOptimizerImport(optimizer.get(), host_states[r][3].data(),
                                  host_states[r][3].size()));
      EXPECT_EQ(optimizer.x().Read(), expected[r][3].x);
      EXPECT_EQ(optimizer.copy().Read(), expected[r][3].copy);
      for (size_t call = 5; call <= 8; ++call) {
        EXPECT_EQ(DifferenceOf(optimizer.Step(call), expected[r][call - 1]), "") << call;
      }
      device_states[r] = optimizer.Export();
      EXPECT_EQ(device_states[r], host_states[r][7]);
    });
    RunRanks(kRanks, [&](onebitComm_t comm, int rank) {
      const auto r = static_cast<size_t>(rank);
      PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kHost);
      Check(
          onebitOptimizerImport(optimizer.get(), device_states[r].data(), device_states[r].size()));
      for (size_t call = 9; call <= 12; ++call) {
        EXPECT_EQ(DifferenceOf(optimizer.Step(call), expected[r][call - 1]), "") << call;
      }
    });
  }
}

TEST_P(DeviceOptimizerCallsTest, ADamagedStateChangesNothing) {
  Run(1, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(ZeroOneCase(), comm, rank, 1, Memories::kDevice);
    for (size_t call = 1; call <= 7; ++call) optimizer.Step(call);
    const Blob before = optimizer.Export();
    Blob damaged = before;
    damaged[damaged.size() / 2] ^= std::byte{4};
    EXPECT_EQ(onebitOptimizerImport(optimizer.get(), damaged.data(), damaged.size()),
              onebitCorrupt);
    EXPECT_EQ(optimizer.Export(), before);
  });
}

// --------------------------------------------------------------------------------------- streams

// Earlier work of the caller on a step's stream, and steps on changing streams.
TEST_P(DeviceOptimizerCallsTest, StepsFollowTheStreamAndEachOther) {
  constexpr int kRanks = 2;
  PlacedCase one = AdamCase();
  one.has_copy = false;
  std::vector<std::vector<std::byte>> expected(kRanks), found(kRanks);
  const auto gradient_of = [](size_t call, int rank) {
    std::vector<float> gradient(PlacedCase::kCount);
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<float>((i * 7 + call * 3 + static_cast<size_t>(rank)) % 11) - 5;
    }
    return gradient;
  };
  RunRanks(kRanks, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kHost);
    for (size_t call = 1; call <= 8; ++call) {
      std::vector<float> gradient = gradient_of(call, rank);
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.01, 1, 0,
                                nullptr, nullptr));
    }
    expected[static_cast<size_t>(rank)] = optimizer.x().Read();
  });
  Run(kRanks, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(one, comm, rank, kRanks, Memories::kDevice);
    CudaBuffer gradients(PlacedCase::kCount * sizeof(float));
    const CudaStream streams[2];
    for (size_t call = 1; call <= 8; ++call) {
      const CUstream stream = call % 3 == 0 ? nullptr : streams[call % 2].get();
      const std::vector<float> gradient = gradient_of(call, rank);
      const CudaBuffer source(std::as_bytes(std::span(gradient)));
      // The stream writes the step's input after a while.
      CheckCuda(
          cuLaunchHostFunc(
              stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); },
              nullptr),
          "cuLaunchHostFunc");
      CheckCuda(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(gradients.data()),
                                  reinterpret_cast<CUdeviceptr>(source.data()),
                                  gradient.size() * sizeof(float), stream),
                "cuMemcpyDtoDAsync");
      Check(onebitOptimizerStep(optimizer.get(), gradients.data(), onebitFloat32, 0.01, 1, 0,
                                nullptr, stream));
      CheckCuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    found[static_cast<size_t>(rank)] = optimizer.x().Read();
  });
  EXPECT_EQ(found, expected);
}

TEST_P(DeviceOptimizerCallsTest, AllocateNothingAndLeaveWaitingToPollingInTheSteadyState) {
  RankBarrier barrier(2);
  for (PlacedCase one : OneOfEach()) {
    one.max_grad_norm = 2;
    SCOPED_TRACE(Describe(one));
    Run(2, [&](onebitComm_t comm, int rank) {
      PlacedOptimizer optimizer(one, comm, rank, 2, Memories::kDevice);
      for (size_t call = 1; call <= 8; ++call) optimizer.Step(call);
      CudaBuffer gradients(PlacedCase::kCount * sizeof(float));
      const std::vector<float> zeros(PlacedCase::kCount);
      gradients.Write(std::as_bytes(std::span(zeros)));
      barrier.Wait();
      onebitTestCudaCounts before, after;
      onebitTestCudaGetCounts(&before);
      barrier.Wait();
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(onebitOptimizerStep(optimizer.get(), gradients.data(), onebitFloat32, 0.01, 1, 2,
                                      nullptr, optimizer.stream()),
                  onebitSuccess)
            << LastError();
      }
      barrier.Wait();
      onebitTestCudaGetCounts(&after);
      barrier.Wait();
      EXPECT_EQ(after.allocations, before.allocations);
      EXPECT_EQ(after.frees, before.frees);
      EXPECT_EQ(after.host_waits, before.host_waits);
    });
  }
}

// Freeing waits for the device, where another rank's stream may wait for this thread's call.
TEST_P(DeviceOptimizerCallsTest, StepsFreeNoMemory) {
  PlacedCase one = ZeroOneCase();
  one.gradient_type = onebitFloat16;
  one.nan_calls = {3, 13, 14, 15};
  RankBarrier barrier(2);
  Run(2, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(one, comm, rank, 2, Memories::kDevice);
    barrier.Wait();
    onebitTestCudaCounts before, after;
    onebitTestCudaGetCounts(&before);
    barrier.Wait();
    int skipped = 0;
    for (size_t call = 1; call <= 24; ++call) skipped += optimizer.Step(call).result.skipped;
    barrier.Wait();
    onebitTestCudaGetCounts(&after);
    barrier.Wait();
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_GT(skipped, 0);
    onebitOptimizerStats_t stats{};
    stats.size = sizeof(stats);
    Check(onebitOptimizerGetStats(optimizer.get(), &stats));
    EXPECT_GT(stats.frozen_at, 0u);
    EXPECT_LT(stats.frozen_at, stats.step);
  });
}

TEST_P(DeviceOptimizerCallsTest, LeaveTheCurrentDeviceAsItIs) {
  Run(2, [](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(ZeroOneCase(), comm, rank, 2, Memories::kDevice);
    CudaBuffer gradients(PlacedCase::kCount * sizeof(float));
    const std::vector<float> ones(PlacedCase::kCount, 1);
    gradients.Write(std::as_bytes(std::span(ones)));
    std::vector<float> m(PlacedCase::kCount);
    UseCudaDevice(rank + 2);
    CUcontext before = nullptr;
    CheckCuda(cuCtxGetCurrent(&before), "cuCtxGetCurrent");
    const size_t depth = onebitTestCudaContextDepth();
    for (int i = 0; i < 8; ++i) {
      Check(onebitOptimizerStep(optimizer.get(), gradients.data(), onebitFloat32, 0.01, 1, 0,
                                nullptr, optimizer.stream()));
    }
    const Blob state = optimizer.Export(onebitStateGlobal);
    Check(onebitOptimizerImport(optimizer.get(), state.data(), state.size()));
    Check(onebitOptimizerGetMoment(optimizer.get(), ONEBIT_ALL_SEGMENTS, "m", m.data()));
    EXPECT_NE(onebitOptimizerStep(optimizer.get(), m.data(), onebitFloat32, 0.01, 1, 0, nullptr,
                                  optimizer.stream()),
              onebitSuccess);
    CUcontext after = nullptr;
    CheckCuda(cuCtxGetCurrent(&after), "cuCtxGetCurrent");
    EXPECT_EQ(after, before);
    EXPECT_EQ(onebitTestCudaContextDepth(), depth);
    UseCudaDevice(rank);
  });
}

// -------------------------------------------------------------------------------------- refusals

TEST_P(DeviceOptimizerCallsTest, RefuseWhatIsElsewhere) {
  Run(2, [](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(AdamCase(), comm, rank, 2, Memories::kDevice);
    CudaBuffer gradients(PlacedCase::kCount * sizeof(float));
    std::vector<float> host(PlacedCase::kCount);
    const auto step = [&](void* with, onebitStream_t stream) {
      return onebitOptimizerStep(optimizer.get(), with, onebitFloat32, 0.01, 1, 0, nullptr, stream);
    };
    EXPECT_EQ(step(host.data(), nullptr), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("gradients is host memory, but the parameters are memory of "
                                       "CUDA device " +
                                       std::to_string(rank)));
    UseCudaDevice(rank + 2);
    CudaBuffer elsewhere(PlacedCase::kCount * sizeof(float));
    UseCudaDevice(rank);
    EXPECT_EQ(step(elsewhere.data(), nullptr), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("memory of CUDA device " + std::to_string(rank + 2)));

    onebitStream_t host_stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&host_stream), onebitSuccess);
    EXPECT_EQ(step(gradients.data(), host_stream), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("pass a CUDA stream"));
    EXPECT_EQ(onebitStreamDestroy(host_stream), onebitSuccess);

    const CudaStream captured;
    CudaGraph::Begin(captured);
    EXPECT_EQ(step(gradients.data(), captured.handle()), onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("stream is being captured"));
    const CudaGraph graph(captured);  // the capture is whole
  });
}

TEST_P(DeviceOptimizerCallsTest, RefuseConfigurationsThatContradictTheParameters) {
  Run(2, [](onebitComm_t comm, int rank) {
    CudaBuffer parameters(64 * sizeof(float));
    std::vector<float> host(64);
    onebitCompressorConfig_t compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
    onebitOptimizerConfig_t config = DefaultOptimizer();
    config.compressor = &compressor;
    onebitOptimizer_t optimizer = nullptr;
    const auto create = [&](void* with) {
      return onebitOptimizerCreate(&optimizer, comm, 64, static_cast<float*>(with), &config);
    };
    compressor.memory = onebitMemoryHost;
    EXPECT_EQ(create(parameters.data()), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("the parameters are memory of CUDA device"));
    compressor.memory = onebitMemoryDevice;
    compressor.device = rank + 1;
    EXPECT_EQ(create(parameters.data()), onebitInvalidArgument);
    compressor.device = ONEBIT_UNDEF_INT;
    EXPECT_EQ(create(host.data()), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("the parameters are host memory"));
    config.parameterCopy = host.data();
    config.parameterCopyType = onebitFloat16;
    EXPECT_EQ(create(parameters.data()), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("parameterCopy is host memory"));
    config.parameterCopy = nullptr;
    config.parameterCopyType = ONEBIT_UNDEF_INT;
    compressor.device = rank;
    EXPECT_EQ(create(parameters.data()), onebitSuccess) << LastError();
    EXPECT_EQ(onebitOptimizerDestroy(optimizer), onebitSuccess);
  });
}

TEST(HostOptimizerTest, RefusesGradientsOnADevice) {
  RunRanks(1, [](onebitComm_t comm, int rank) {
    UseCudaDevice(0);
    PlacedOptimizer optimizer(AdamCase(), comm, rank, 1, Memories::kHost);
    CudaBuffer gradients(PlacedCase::kCount * sizeof(float));
    EXPECT_EQ(onebitOptimizerStep(optimizer.get(), gradients.data(), onebitFloat32, 0.01, 1, 0,
                                  nullptr, nullptr),
              onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("but the parameters are host memory"));
  });
}

// -------------------------------------------------------------------------------------- failures

TEST_P(DeviceOptimizerCallsTest, AStepThatOtherRanksDoNotMakeEndsWithTheCommunicator) {
  RankBarrier barrier(2);
  Run(2, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(AdamCase(), comm, rank, 2, Memories::kDevice);
    for (size_t call = 1; call <= 6; ++call) optimizer.Step(call);
    const Blob before = optimizer.Export();
    barrier.Wait();
    if (rank == 1) {
      EXPECT_TRUE(AwaitOtherThreadsAsleep());
      EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
      return;
    }
    EXPECT_NE(optimizer.TryStep(7, nullptr), onebitSuccess);
    EXPECT_NE(LastError(), "");
    EXPECT_EQ(optimizer.Export(), before);
  });
}

TEST_P(DeviceOptimizerCallsTest, ADeviceThatBreaksIsAnError) {
  RankBarrier barrier(2);
  Run(2, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(AdamCase(), comm, rank, 2, Memories::kDevice);
    for (size_t call = 1; call <= 5; ++call) optimizer.Step(call);
    CudaBuffer gradients(PlacedCase::kCount * sizeof(float));
    const CudaStream stream;
    barrier.Wait();
    std::optional<StreamGate> gate;
    std::jthread breaker;
    if (rank == 0) {
      gate.emplace(stream);
      breaker = std::jthread([] {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());  // until the step waits
        onebitTestCudaBreak(0, CUDA_ERROR_ILLEGAL_ADDRESS);
      });
    }
    EXPECT_NE(onebitOptimizerStep(optimizer.get(), gradients.data(), onebitFloat32, 0.01, 1, 0,
                                  nullptr, stream.handle()),
              onebitSuccess);
    barrier.Wait();
    if (rank == 0) onebitTestCudaBreak(0, CUDA_SUCCESS);
  });
}

// It then takes over the residuals of that step, so no other rank needs to send them.
TEST(DeviceOptimizerRebindTest, ACallMayCommitAfterItsStepGaveUp) {
  PlacedCase one = AdamCase();
  one.has_segments = false;  // one collective in a step
  RankBarrier barrier(2);
  std::vector<Blob> states(2);
  RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int rank) {
    PlacedOptimizer optimizer(one, comm, rank, 2, Memories::kDevice);
    for (size_t call = 1; call <= 7; ++call) optimizer.Step(call);
    barrier.Wait();
    if (rank == 0) {
      // The first record ends the call, the second one is to be waited for.
      onebitTestCudaFail("cuEventRecord", 1, 1, CUDA_ERROR_UNKNOWN);
      EXPECT_NE(optimizer.TryStep(8, nullptr), onebitSuccess);
    }
    barrier.Wait();
    if (rank == 1) {
      const PlacedStep step = optimizer.Step(8);
      EXPECT_EQ(step.result.stage, onebitStageCompressed);
    }
    CheckCuda(cuCtxSynchronize(), "cuCtxSynchronize");
    // No event tells that the call of rank 0 commits.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    barrier.Wait();
    onebitComm_t next = nullptr;
    Check(onebitCommShrink(comm, nullptr, 0, &next, nullptr, ONEBIT_SHRINK_ABORT));
    int source = -1;
    EXPECT_EQ(onebitOptimizerRebind(optimizer.get(), next, &source), onebitSuccess) << LastError();
    EXPECT_EQ(source, 1);
    optimizer.Step(9);
    states[static_cast<size_t>(rank)] = optimizer.Export(onebitStateGlobal);
    optimizer.reset();
    Check(onebitCommDestroy(next));
  });
  EXPECT_EQ(states[0], states[1]);
}

TEST_P(DeviceOptimizerCallsTest, GiveEverythingBack) {
  for (const PlacedCase& one : OneOfEach()) {
    Run(2, [&](onebitComm_t comm, int rank) {
      PlacedOptimizer optimizer(one, comm, rank, 2, Memories::kDevice);
      for (size_t call = 1; call <= 8; ++call) optimizer.Step(call);
    });
    for (const int device : {0, 1, -1}) EXPECT_EQ(onebitTestCudaAllocatedBytes(device), 0u);
    EXPECT_EQ(onebitTestCudaLiveStreams(), 0u);
    EXPECT_EQ(onebitTestCudaLiveEvents(), 0u);
  }
}

TEST_P(DeviceOptimizerCallsTest, LackOfMemoryIsToldByCreateAndNothingIsLost) {
  for (const PlacedCase& one : OneOfEach()) {
    for (const char* function : {"cuMemAlloc_v2", "cuMemHostAlloc"}) {
      SCOPED_TRACE(Describe(one) + function);
      Run(1, [&](onebitComm_t comm, int) {
        CudaBuffer parameters(64 * sizeof(float));
        for (unsigned skip = 0;; ++skip) {
          ASSERT_LT(skip, 50u);
          onebitOptimizer_t optimizer = nullptr;
          onebitTestCudaFail(function, skip, 1, CUDA_ERROR_OUT_OF_MEMORY);
          const onebitResult_t result = onebitOptimizerCreate(
              &optimizer, comm, 64, static_cast<float*>(parameters.data()), &one.subject.config);
          onebitTestCudaFail(function, 0, 0, CUDA_SUCCESS);
          if (result == onebitSuccess) {
            EXPECT_EQ(onebitOptimizerDestroy(optimizer), onebitSuccess);
            break;
          }
          EXPECT_EQ(result, onebitOutOfMemory) << LastError();
          EXPECT_EQ(optimizer, nullptr);
        }
      });
      EXPECT_EQ(onebitTestCudaAllocatedBytes(0), 0u);
      EXPECT_EQ(onebitTestCudaAllocatedBytes(-1), 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceOptimizerCallsTest,
                         ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

// ---------------------------------------------------------------------------------------- rebind

// Steps, the loss of a rank, and more steps of the others; returns `memories` of all ranks.
std::vector<std::vector<std::byte>> RunWithLoss(const PlacedCase& one, onebitComm_t comm, int rank,
                                                Memories memories, RankBarrier& barrier) {
  constexpr int kRanks = 3;
  PlacedOptimizer optimizer(one, comm, rank, kRanks, memories);
  std::vector<std::vector<std::byte>> trace;
  for (size_t call = 1; call <= 8; ++call) trace.push_back(optimizer.Step(call).x);
  Check(onebitOptimizerSync(optimizer.get()));
  barrier.Wait();
  onebitComm_t next = nullptr;
  const int lost[] = {1};
  if (rank == 1) {
    Check(onebitCommAbort(comm));
    return trace;
  }
  Check(onebitCommShrink(comm, lost, 1, &next, nullptr, ONEBIT_SHRINK_ABORT));
  int source = -1;
  const onebitResult_t rebound = onebitOptimizerRebind(optimizer.get(), next, &source);
  if (rebound == onebitSuccess) {
    for (size_t call = 9; call <= 13; ++call) trace.push_back(optimizer.Step(call).x);
  }
  const std::string text = LastError();
  optimizer.reset();
  onebitCommDestroy(next);
  if (rebound != onebitSuccess) throw std::runtime_error(text);
  return trace;
}

TEST(DeviceOptimizerRebindTest, EqualsTheHostAfterTheLossOfARank) {
  for (const PlacedCase& one : OneOfEach()) {
    SCOPED_TRACE(Describe(one));
    std::vector<std::vector<std::vector<std::byte>>> expected(3), found(3);
    RankBarrier barrier(3);
    RunRanks(3, [&](onebitComm_t comm, int rank) {
      expected[static_cast<size_t>(rank)] = RunWithLoss(one, comm, rank, Memories::kHost, barrier);
    });
    RunDeviceRanks(Over::kLocal, 3, [&](onebitComm_t comm, int rank) {
      found[static_cast<size_t>(rank)] = RunWithLoss(one, comm, rank, Memories::kDevice, barrier);
    });
    EXPECT_EQ(expected[0].size(), 13u);
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace onebit::testing
