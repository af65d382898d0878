// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How calls on device memory behave towards the program that makes them: what they wait for, what
// they leave as it was, what they refuse.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/cuda/stand_in.h"

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

// Holds a stream up until it is released.
class Gate {
 public:
  explicit Gate(const CudaStream& stream) {
    CheckCuda(cuLaunchHostFunc(
                  stream.get(),
                  [](void* gate) {
                    while (!static_cast<Gate*>(gate)->is_open_.load()) {
                      std::this_thread::sleep_for(std::chrono::microseconds(100));
                    }
                  },
                  this),
              "cuLaunchHostFunc");
  }
  ~Gate() { Open(); }
  void Open() { is_open_.store(true); }

 private:
  std::atomic<bool> is_open_{false};
};

// Fails after so long: a test must not hang.
bool IsDoneSoon(const CudaStream& stream, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (cuStreamQuery(stream.get()) == CUDA_ERROR_NOT_READY) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

onebitResult_t AwaitAsyncError(onebitComm_t comm, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  onebitResult_t error = onebitSuccess;
  while (error == onebitSuccess && std::chrono::steady_clock::now() < end) {
    EXPECT_EQ(onebitCommGetAsyncError(comm, &error), onebitSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return error;
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
    Gate gate(stream);
    const std::vector<std::byte> ones = Ones(kCount);
    // Behind the gate: a call that did not wait for its place would reduce what was there before.
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
    ASSERT_TRUE(IsDoneSoon(stream, std::chrono::seconds(20)));
    onebitTestCudaCounts after;
    onebitTestCudaGetCounts(&after);
    ready.fetch_add(1);  // nobody frees anything before both have looked
    while (ready.load() < 4) std::this_thread::yield();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_EQ(after.host_waits, before.host_waits);
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
    EXPECT_THAT(LastError(), HasSubstr("sendbuff is host memory, but recvbuff memory of CUDA"));
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
    EXPECT_THAT(LastError(), HasSubstr("give a CUDA stream"));
    EXPECT_EQ(onebitStreamDestroy(host_stream), onebitSuccess);
  });
}

// The streams of the others must go on, whatever their ranks wait for.
TEST_P(DeviceCallsTest, AbortReleasesTheStream) {
  Run(2, [](onebitComm_t comm, int rank) {
    if (rank == 1) return;  // never makes the call
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              nullptr, comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_FALSE(IsDoneSoon(stream, std::chrono::milliseconds(50)));
    EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
    EXPECT_TRUE(IsDoneSoon(stream, std::chrono::seconds(10)));
    onebitResult_t error = onebitSuccess;
    EXPECT_EQ(onebitCommGetAsyncError(comm, &error), onebitSuccess);
    EXPECT_EQ(error, onebitAborted);
  });
}

TEST_P(DeviceCallsTest, CallsThatDifferAreAMismatchOnEveryRank) {
  Run(3, [](onebitComm_t comm, int rank) {
    const UniqueCompressor compressor = NewDeviceCompressor(comm, kCount, rank == 1 ? 7 : 3);
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(AwaitAsyncError(comm, std::chrono::seconds(10)), onebitMismatch);
    EXPECT_THAT(std::string(onebitGetLastError(comm)), HasSubstr("tensor"));
    EXPECT_TRUE(IsDoneSoon(stream, std::chrono::seconds(10)));
  });
}

// Nothing in the messages of dense calls tells them apart.
TEST_P(DeviceCallsTest, DenseCallsThatDifferAreAMismatchOnEveryRank) {
  Run(2, [](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer buffer(Ones(kCount));
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32,
                              rank == 0 ? onebitSum : onebitAvg, nullptr, comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(AwaitAsyncError(comm, std::chrono::seconds(10)), onebitMismatch);
    EXPECT_TRUE(IsDoneSoon(stream, std::chrono::seconds(10)));
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
    const auto export_state = [&](onebitStateKind_t kind) {
      size_t bytes = 0;
      EXPECT_EQ(onebitCompressorExport(first.get(), kind, nullptr, &bytes), onebitSuccess);
      std::vector<std::byte> blob(bytes);
      EXPECT_EQ(onebitCompressorExport(first.get(), kind, blob.data(), &bytes), onebitSuccess)
          << LastError();
      return blob;
    };
    const std::vector<std::byte> own = export_state(onebitStateRank);
    const std::vector<std::byte> global = export_state(onebitStateGlobal);
    call(first);
    const std::vector<std::byte> expected = output.Read();

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

// Calls share what a communicator works with: a second one may not begin before the first has
// ended.
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
    Gate gate(stream);
    call(buffer, first, stream);
    call(another, second, other);
    EXPECT_FALSE(IsDoneSoon(other, std::chrono::milliseconds(50)));
    gate.Open();
    ASSERT_TRUE(IsDoneSoon(other, std::chrono::seconds(20)));
    ASSERT_TRUE(IsDoneSoon(stream, std::chrono::seconds(20)));
    EXPECT_EQ(buffer.Read(), Ones(kCount));
    EXPECT_EQ(another.Read(), Ones(kCount, 2));
  });
}

// On one rank: the others must not take it for another call.
TEST_P(DeviceCallsTest, StatsOfOneRankChangeNoCall) {
  Run(2, [](onebitComm_t comm, int rank) {
    constexpr size_t kFew = 500;  // one exchange, whose replicas are compared by their age
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

// Its devices are those of the communicators, and each has a stream of its own.
TEST(DeviceGroupTest, LetsOneThreadDriveSeveralDevices) {
  constexpr int kRanks = 3;
  std::vector<onebitComm_t> comms(kRanks);
  std::atomic<int> ready{0};
  std::atomic<bool> is_over{false};
  RunDeviceRanks(Over::kNccl, kRanks, [&](onebitComm_t comm, int rank) {
    comms[static_cast<size_t>(rank)] = comm;
    ready.fetch_add(1);
    if (rank != 0) {
      while (!is_over.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    while (ready.load() < kRanks) std::this_thread::yield();
    struct End {
      std::atomic<bool>& is_over;
      ~End() { is_over.store(true); }
    } const end{is_over};
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
