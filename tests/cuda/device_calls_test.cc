// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The effects of calls on device memory on the calling program: which work they wait for, what they
// leave unchanged, and what they refuse.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 20'000;

std::string LastError() { return onebitGetLastError(nullptr); }

UniqueCompressor NewDeviceCompressor(onebitComm_t comm, size_t count = kCount,
                                     int64_t tensor_id = -1) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.memory = onebitMemoryDevice;
  config.tensorId = tensor_id;
  onebitCompressor_t compressor = nullptr;
  if (onebitCompressorCreate(&compressor, comm, count, onebitFloat32, &config) != onebitSuccess) {
    throw std::runtime_error(LastError());
  }
  return UniqueCompressor(compressor);
}

std::vector<std::byte> Ones(size_t count, float value = 1) {
  const std::vector<float> values(count, value);
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class DeviceCallsTest : public ::testing::TestWithParam<Over> {
 protected:
  static void Run(int ranks, const std::function<void(onebitComm_t, int)>& body) {
    RunDeviceRanks(GetParam(), ranks, body);
  }
};

TEST_P(DeviceCallsTest, ReturnBeforeTheStreamComesToThem) {
  Run(2, [](onebitComm_t comm, int) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    CudaBuffer buffer(kCount * sizeof(float));
    StreamGate gate(stream);
    const std::vector<std::byte> ones = Ones(kCount);
    // The copy runs after the gate opens: a call that did not wait for it would reduce the former
    // content.
    CudaBuffer source(ones);
    CheckCuda(
        cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(buffer.data()),
                          reinterpret_cast<CUdeviceptr>(source.data()), ones.size(), stream.get()),
        "cuMemcpyDtoDAsync");
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_NOT_READY);
    gate.Open();
    stream.Synchronize();
    EXPECT_EQ(buffer.Read(), ones);  // all signs equal: nothing is lost
  });
}

TEST_P(DeviceCallsTest, WaitForNothingAndAllocateNothingInTheSteadyState) {
  std::atomic<int> ready{0};
  Run(2, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    CudaBuffer buffer(Ones(kCount));
    const auto call = [&](onebitCompressor_t with) {
      ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                                with, comm, stream.handle()),
                onebitSuccess)
          << LastError();
    };
    for (int i = 0; i < 2; ++i) {
      call(compressor.get());
      call(nullptr);
    }
    stream.Synchronize();
    ready.fetch_add(1);
    while (ready.load() < 2) std::this_thread::yield();
    onebitTestCudaCounts before;
    onebitTestCudaGetCounts(&before);
    for (int i = 0; i < 5; ++i) {
      call(compressor.get());
      call(nullptr);
    }
    ASSERT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
    onebitTestCudaCounts after;
    onebitTestCudaGetCounts(&after);
    ready.fetch_add(1);  // nobody frees memory before both have looked
    while (ready.load() < 4) std::this_thread::yield();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_EQ(after.host_waits, before.host_waits);
  });
}

// If a stream waits for a thread of the library, CUDA may wait for that stream when it allocates.
// So memory for a call of a new size must be allocated before the stream waits.
TEST_P(DeviceCallsTest, AllocateNothingWhileTheStreamWaitsForThem) {
  std::barrier everybody(2);
  Run(2, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    std::vector<CudaBuffer> buffers;
    for (size_t i = 0; i < 3; ++i) buffers.emplace_back(Ones(kCount << i));
    const auto call = [&](size_t i, onebitCompressor_t with) {
      EXPECT_EQ(onebitAllReduce(buffers[i].data(), buffers[i].data(), kCount << i, onebitFloat32,
                                onebitSum, with, comm, stream.handle()),
                onebitSuccess)
          << LastError();
    };
    onebitTestCudaCounts before, after;
    {
      StreamGate gate(stream);
      call(1, nullptr);
      call(2, nullptr);
      EXPECT_EQ(onebitGroupStart(), onebitSuccess);
      call(0, compressor.get());
      call(1, nullptr);
      call(2, nullptr);
      EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
      everybody.arrive_and_wait();
      onebitTestCudaGetCounts(&before);
      everybody.arrive_and_wait();
    }
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
    everybody.arrive_and_wait();
    onebitTestCudaGetCounts(&after);
    everybody.arrive_and_wait();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(buffers[2].Read(), Ones(kCount << 2, 4));
  });
}

TEST_P(DeviceCallsTest, LeaveTheCurrentDeviceAsItIs) {
  Run(2, [](onebitComm_t comm, int rank) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    UseCudaDevice(rank + 2);
    CUcontext before = nullptr;
    CheckCuda(cuCtxGetCurrent(&before), "cuCtxGetCurrent");
    const size_t depth = onebitTestCudaContextDepth();
    EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(onebitAllReduce(nullptr, buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm, stream.handle()),
              onebitInvalidArgument);
    CUcontext after = nullptr;
    CheckCuda(cuCtxGetCurrent(&after), "cuCtxGetCurrent");
    EXPECT_EQ(after, before);
    EXPECT_EQ(onebitTestCudaContextDepth(), depth);
    UseCudaDevice(rank);
    stream.Synchronize();
  });
}

TEST_P(DeviceCallsTest, RefuseMemoryThatDoesNotFit) {
  Run(2, [](onebitComm_t comm, int rank) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    std::vector<float> host(kCount, 1);
    const auto call = [&](const void* from, void* to, onebitCompressor_t with, onebitStream_t on) {
      return onebitAllReduce(from, to, kCount, onebitFloat32, onebitAvg, with, comm, on);
    };
    EXPECT_EQ(call(host.data(), buffer.data(), nullptr, stream.handle()), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("sendbuff is host memory, but recvbuff is memory of CUDA"));
    EXPECT_EQ(call(host.data(), host.data(), nullptr, stream.handle()), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("the buffers are host memory"));
    EXPECT_EQ(call(host.data(), host.data(), compressor.get(), nullptr), onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("was created for memory of CUDA device"));

    UseCudaDevice(rank + 2);
    const CudaBuffer elsewhere(Ones(kCount));
    UseCudaDevice(rank);
    EXPECT_EQ(call(elsewhere.data(), elsewhere.data(), compressor.get(), stream.handle()),
              onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("memory of CUDA device " + std::to_string(rank + 2)));

    onebitStream_t host_stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&host_stream), onebitSuccess);
    EXPECT_EQ(call(buffer.data(), buffer.data(), compressor.get(), host_stream),
              onebitInvalidArgument);
    EXPECT_THAT(LastError(), HasSubstr("pass a CUDA stream"));
    EXPECT_EQ(onebitStreamDestroy(host_stream), onebitSuccess);
  });
}

// The streams of the other ranks must continue, whatever they wait for.
TEST_P(DeviceCallsTest, AbortReleasesTheStream) {
  Run(2, [](onebitComm_t comm, int rank) {
    if (rank == 1) return;  // never makes the call
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              nullptr, comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_FALSE(IsDoneWithin(stream, std::chrono::milliseconds(50)));
    EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(10)));
    onebitResult_t error = onebitSuccess;
    EXPECT_EQ(onebitCommGetAsyncError(comm, &error), onebitSuccess);
    EXPECT_EQ(error, onebitAborted);
  });
}

// A rank whose call comes last may be told of the mismatch instead of making the call.
const auto kSuccessOrMismatch = ::testing::AnyOf(onebitSuccess, onebitMismatch);

TEST_P(DeviceCallsTest, CallsThatDifferAreAMismatchOnEveryRank) {
  std::barrier ready(3);  // a failure while a rank joins is not tested here
  Run(3, [&](onebitComm_t comm, int rank) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm, kCount, rank == 1 ? 7 : 3);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    ready.arrive_and_wait();
    EXPECT_THAT(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), comm, stream.handle()),
                kSuccessOrMismatch)
        << LastError();
    EXPECT_EQ(AwaitError(comm).result, onebitMismatch);
    EXPECT_THAT(std::string(onebitGetLastError(comm)), HasSubstr("tensor"));
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(10)));
  });
}

// Messages of dense calls do not differ.
TEST_P(DeviceCallsTest, DenseCallsThatDifferAreAMismatchOnEveryRank) {
  std::barrier ready(2);
  Run(2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    ready.arrive_and_wait();
    EXPECT_THAT(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32,
                                rank == 0 ? onebitSum : onebitAvg, nullptr, comm, stream.handle()),
                kSuccessOrMismatch)
        << LastError();
    EXPECT_EQ(AwaitError(comm).result, onebitMismatch);
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(10)));
  });
}

TEST_P(DeviceCallsTest, GroupsAreWhatTheirCallsAreAlone) {
  constexpr size_t kTensors = 5;
  Run(3, [](onebitComm_t comm, int rank) {
    const CudaStream stream;
    std::vector<UniqueCompressor> alone, grouped;
    std::vector<CudaBuffer> inputs, results, group_results;
    for (size_t i = 0; i < kTensors; ++i) {
      const size_t count = 100 + 3000 * i;
      alone.push_back(NewDeviceCompressor(comm, count));
      grouped.push_back(NewDeviceCompressor(comm, count));
      std::vector<float> values(count);
      std::iota(values.begin(), values.end(), static_cast<float>(rank) - 50.0f);
      inputs.emplace_back(std::as_bytes(std::span(values)));
      results.emplace_back(count * sizeof(float));
      group_results.emplace_back(count * sizeof(float));
    }
    const auto call_all = [&](const std::vector<UniqueCompressor>& compressors,
                              const std::vector<CudaBuffer>& to) {
      for (size_t i = 0; i < kTensors; ++i) {
        const bool is_dense = i == 2;
        ASSERT_EQ(onebitAllReduce(inputs[i].data(), to[i].data(), 100 + 3000 * i, onebitFloat32,
                                  onebitAvg, is_dense ? nullptr : compressors[i].get(), comm,
                                  stream.handle()),
                  onebitSuccess)
            << LastError();
      }
    };
    for (int turn = 0; turn < 3; ++turn) {
      call_all(alone, results);
      ASSERT_EQ(onebitGroupStart(), onebitSuccess);
      call_all(grouped, group_results);
      ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
      stream.Synchronize();
      for (size_t i = 0; i < kTensors; ++i) EXPECT_EQ(group_results[i].Read(), results[i].Read());
    }
  });
}

TEST_P(DeviceCallsTest, StatesMoveBetweenHostAndDevice) {
  Run(3, [](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const UniqueCompressor first = NewDeviceCompressor(comm);
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), static_cast<float>(rank) - 5000.0f);
    const CudaBuffer input(std::as_bytes(std::span(values)));
    const CudaBuffer output(kCount * sizeof(float));
    const auto call = [&](const UniqueCompressor& compressor) {
      ASSERT_EQ(onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), comm, stream.handle()),
                onebitSuccess)
          << LastError();
      stream.Synchronize();
    };
    call(first);
    call(first);
    const std::vector<std::byte> own = StateOf(first.get());
    const std::vector<std::byte> global = StateOf(first.get(), onebitStateGlobal);
    call(first);
    const std::vector<std::byte> expected = output.Read();
    ASSERT_EQ(onebitCompressorRevert(first.get()), onebitSuccess) << LastError();
    EXPECT_EQ(StateOf(first.get(), onebitStateRank), own);
    ASSERT_EQ(onebitCompressorRevert(first.get()), onebitSuccess) << LastError();
    EXPECT_EQ(StateOf(first.get(), onebitStateRank), own);
    call(first);
    EXPECT_EQ(output.Read(), expected);

    const UniqueCompressor second = NewDeviceCompressor(comm);
    ASSERT_EQ(onebitCompressorImport(second.get(), own.data(), own.size()), onebitSuccess)
        << LastError();
    call(second);
    EXPECT_EQ(output.Read(), expected);

    ASSERT_EQ(onebitCompressorImport(second.get(), global.data(), global.size()), onebitSuccess)
        << LastError();
    onebitCompressorStats_t stats = {.size = sizeof stats};
    ASSERT_EQ(onebitCompressorGetStats(second.get(), &stats), onebitSuccess);
    EXPECT_EQ(stats.epoch, 2u);
    ASSERT_EQ(onebitCompressorReset(second.get()), onebitSuccess) << LastError();
    const UniqueCompressor third = NewDeviceCompressor(comm);
    call(third);
    const std::vector<std::byte> fresh = output.Read();
    call(second);
    EXPECT_EQ(output.Read(), fresh);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceCallsTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

// Calls share the working memory of a communicator, so a second one must not begin before the first
// has ended.
TEST_P(DeviceCallsTest, OnSeveralStreamsFollowEachOther) {
  Run(2, [](onebitComm_t comm, int) {
    const UniqueCompressor first = NewDeviceCompressor(comm);
    const UniqueCompressor second = NewDeviceCompressor(comm);
    const CudaStream stream, other;
    CudaBuffer buffer(Ones(kCount)), another(Ones(kCount, 2));
    const auto call = [&](const CudaBuffer& values, const UniqueCompressor& with,
                          const CudaStream& on) {
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                with.get(), comm, on.handle()),
                onebitSuccess)
          << LastError();
    };
    StreamGate gate(stream);
    call(buffer, first, stream);
    call(another, second, other);
    EXPECT_FALSE(IsDoneWithin(other, std::chrono::milliseconds(50)));
    gate.Open();
    ASSERT_TRUE(IsDoneWithin(other, std::chrono::seconds(20)));
    ASSERT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
    EXPECT_EQ(buffer.Read(), Ones(kCount));
    EXPECT_EQ(another.Read(), Ones(kCount, 2));
  });
}

TEST_P(DeviceCallsTest, ThatAreNotFiniteAreCountedByTheCommunicator) {
  Run(2, [](onebitComm_t comm, int rank) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    const CudaBuffer good(Ones(kCount)), bad(Ones(kCount, rank == 1 ? INFINITY : 1));
    const CudaBuffer output(kCount * sizeof(float));
    const auto call = [&](const CudaBuffer& input) {
      EXPECT_EQ(onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), comm, stream.handle()),
                onebitSuccess)
          << LastError();
    };
    for (const CudaBuffer* input : {&good, &bad, &good, &bad}) call(*input);
    stream.Synchronize();
    uint64_t expected = 2;
    if (GetParam() == Over::kNccl) {  // the only transport that can replay calls
      CudaGraph::Begin(stream);
      call(bad);
      const CudaGraph graph(stream);
      for (int replay = 0; replay < 3; ++replay) graph.Launch(stream);
      stream.Synchronize();
      expected += 3;
    }
    onebitCommStats_t stats = {.size = sizeof stats};
    EXPECT_EQ(onebitCommGetStats(comm, &stats), onebitSuccess);
    EXPECT_EQ(stats.nonfinite_calls, expected);
  });
}

// Called on one rank only: the other ranks must not take it for a call.
TEST_P(DeviceCallsTest, StatsOfOneRankChangeNoCall) {
  Run(2, [](onebitComm_t comm, int rank) {
    constexpr size_t kFew = 500;  // one exchange, which compares the age of replicas
    const UniqueCompressor compressor = NewDeviceCompressor(comm, kFew);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kFew));
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kFew, onebitFloat32, onebitAvg,
                                compressor.get(), comm, stream.handle()),
                onebitSuccess)
          << LastError();
      stream.Synchronize();
      onebitCompressorStats_t stats = {.size = sizeof stats};
      if (rank == 0) {
        ASSERT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess);
        EXPECT_EQ(stats.epoch, static_cast<uint64_t>(i) + 1);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(250));  // until records are compared
    onebitResult_t error = onebitSuccess;
    EXPECT_EQ(onebitCommGetAsyncError(comm, &error), onebitSuccess);
    EXPECT_EQ(error, onebitSuccess) << onebitGetLastError(comm);
  });
}

// The group's devices are those of its communicators, each with a stream of its own.
TEST(DeviceGroupTest, LetsOneThreadDriveSeveralDevices) {
  constexpr int kRanks = 3;
  RunDeviceRanksInOneThread(Over::kNccl, kRanks, [&](std::span<const onebitComm_t> comms) {
    std::vector<std::unique_ptr<CudaStream>> streams;
    std::vector<CudaBuffer> buffers;
    std::vector<UniqueCompressor> compressors;
    for (int r = 0; r < kRanks; ++r) {
      UseCudaDevice(r);
      streams.push_back(std::make_unique<CudaStream>());
      buffers.emplace_back(Ones(kCount, static_cast<float>(r + 1)));
      compressors.push_back(NewDeviceCompressor(comms[static_cast<size_t>(r)]));
    }
    ASSERT_EQ(onebitGroupStart(), onebitSuccess);
    for (size_t r = 0; r < kRanks; ++r) {
      ASSERT_EQ(onebitAllReduce(buffers[r].data(), buffers[r].data(), kCount, onebitFloat32,
                                onebitSum, compressors[r].get(), comms[r], streams[r]->handle()),
                onebitSuccess)
          << LastError();
    }
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    for (size_t r = 0; r < kRanks; ++r) {
      UseCudaDevice(static_cast<int>(r));
      streams[r]->Synchronize();
      EXPECT_EQ(buffers[r].Read(), Ones(kCount, 6)) << "rank " << r;
    }
    streams.clear();
  });
}

// One communicator's proxy runs the calls of a group. Later calls on other communicators are run by
// their own proxies, in order.
TEST(DeviceGroupTest, IsFollowedByCallsOnEachOfItsCommunicators) {
  constexpr int kTurns = 5;
  RunDeviceRanks(Over::kLocal, 2, [](onebitComm_t comm, int rank) {
    onebitComm_t second = nullptr;
    ASSERT_EQ(onebitCommSplit(comm, 0, rank, &second, nullptr), onebitSuccess) << LastError();
    const UniqueComm owned(second);
    const CudaStream stream, other;
    const CudaBuffer one(Ones(kCount)), two(Ones(kCount)), three(Ones(kCount));
    const auto call = [&](const CudaBuffer& values, onebitComm_t on, const CudaStream& in) {
      EXPECT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitSum,
                                nullptr, on, in.handle()),
                onebitSuccess)
          << LastError();
    };
    StreamGate gate(stream);
    for (int turn = 0; turn < kTurns; ++turn) {
      EXPECT_EQ(onebitGroupStart(), onebitSuccess);
      call(one, comm, stream);
      call(two, second, stream);
      EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
      call(three, second, other);
    }
    EXPECT_FALSE(IsDoneWithin(other, std::chrono::milliseconds(50)));
    gate.Open();
    ASSERT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
    ASSERT_TRUE(IsDoneWithin(other, std::chrono::seconds(20)));
    for (const CudaBuffer* values : {&one, &two, &three}) {
      EXPECT_EQ(values->Read(), Ones(kCount, 1 << kTurns));
    }
  });
}

// A refused call counts for nothing: it must not end the ticket of an earlier call.
TEST(DeviceGroupTest, IsNotOvertakenBehindACallThatIsRefused) {
  RunDeviceRanks(Over::kLocal, 2, [](onebitComm_t comm, int rank) {
    onebitComm_t second = nullptr;
    ASSERT_EQ(onebitCommSplit(comm, 0, rank, &second, nullptr), onebitSuccess) << LastError();
    const UniqueComm owned(second);
    const UniqueCompressor compressor = NewDeviceCompressor(second);
    const CudaStream stream, other, captured;
    const CudaBuffer one(Ones(kCount)), two(Ones(kCount)), three(Ones(kCount)), four(Ones(kCount));
    const auto call = [&](const CudaBuffer& values, onebitComm_t on, const CudaStream& in,
                          onebitCompressor_t with = nullptr) {
      return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitSum, with,
                             on, in.handle());
    };
    StreamGate gate(stream);
    EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    EXPECT_EQ(call(one, comm, stream), onebitSuccess) << LastError();
    EXPECT_EQ(call(two, second, stream), onebitSuccess) << LastError();
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    EXPECT_EQ(call(three, second, other), onebitSuccess) << LastError();
    CudaGraph::Begin(captured);
    EXPECT_EQ(call(four, second, captured, compressor.get()), onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("stream is being captured"));
    const CudaGraph graph(captured);
    EXPECT_FALSE(IsDoneWithin(other, std::chrono::milliseconds(50))) << "the group comes first";
    gate.Open();
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
    EXPECT_TRUE(IsDoneWithin(other, std::chrono::seconds(20)));
    EXPECT_EQ(call(four, second, other), onebitSuccess) << LastError();
    other.Synchronize();
    for (const CudaBuffer* values : {&one, &two, &three, &four}) {
      EXPECT_EQ(values->Read(), Ones(kCount, 2));
    }
  });
}

// Its stream must go on, or the communicators could not be destroyed.
TEST(DeviceGroupTest, EndsWhenItsCommunicatorFailsBeforeItsPlace) {
  std::barrier queued(2);
  RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    StreamGate gate(stream);
    EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    queued.arrive_and_wait();  // the abort of one rank fails the other
    EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
    gate.Open();
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(10)));
    onebitCompressorStats_t stats = {.size = sizeof stats};
    EXPECT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess) << LastError();
    EXPECT_EQ(stats.epoch, 0u);
  });
}

TEST(DeviceCaptureTest, IsRefusedOverATransportOfTheHost) {
  RunDeviceRanks(Over::kLocal, 2, [](onebitComm_t comm, int) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    CheckCuda(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm, stream.handle()),
              onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("stream is being captured"));
    CUgraph graph = nullptr;
    CheckCuda(cuStreamEndCapture(stream.get(), &graph), "the capture is unharmed");
    CheckCuda(cuGraphDestroy(graph), "cuGraphDestroy");
  });
}

TEST(DeviceCaptureTest, WithoutACallBeforeIsRefusedWhereMemoryIsLacking) {
  RunDeviceRanks(Over::kNccl, 2, [](onebitComm_t comm, int) {
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    CheckCuda(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              nullptr, comm, stream.handle()),
              onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("make such a call once before the capture"));
    CUgraph graph = nullptr;
    CheckCuda(cuStreamEndCapture(stream.get(), &graph), "the capture is unharmed");
    CheckCuda(cuGraphDestroy(graph), "cuGraphDestroy");
  });
}

}  // namespace
}  // namespace onebit::testing
