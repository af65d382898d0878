// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams, events and values that streams wait for.
#include <cuda.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tests/device/device_plugin.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

bool IsDone(void* event) {
  int is_done = -1;
  EXPECT_OK(Plugin().QueryEvent(event, &is_done));
  return is_done != 0;
}

// Holds a stream until the host opens it.
class Gate {
 public:
  void Stop(onebitStream_t stream) { ASSERT_OK(Plugin().WaitValue(stream, word_.data(), 1)); }
  void Open() { std::atomic_ref<uint32_t>(word_[0]).store(1, std::memory_order_release); }
  ~Gate() { Open(); }

 private:
  PinnedArray<uint32_t> word_{1};
};

TEST(StreamTest, RunsInOrder) {
  StartedPlugin();
  const Entered entered(0);
  DeviceArray<uint8_t> byte(1);
  PinnedArray<uint8_t> seen(200);
  OwnedStream stream;
  for (int i = 0; i < 200; ++i) {
    ASSERT_OK(Plugin().Fill(byte.data(), static_cast<uint8_t>(i), 1, stream));
    ASSERT_OK(Plugin().Copy(seen.data() + i, byte.data(), 1, stream));
  }
  Finish(stream);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(StreamTest, DoesNotWaitForTheLegacyStream) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  DeviceArray<uint8_t> byte(1);
  Gate gate;
  gate.Stop(nullptr);
  ASSERT_OK(Plugin().Fill(byte.data(), 9, 1, stream));
  Finish(stream);
  EXPECT_ERROR(Plugin().Synchronize(nullptr, 0), onebitTimeout,
               "the CUDA stream has not finished its work within 0 ms");
  gate.Open();
  Finish(nullptr);
}

TEST(StreamTest, SynchronizeGivesUpInTime) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  Gate gate;
  gate.Stop(stream);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(Plugin().Synchronize(stream, 50), onebitTimeout, "within 50 ms");
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(elapsed, std::chrono::milliseconds(50));
  gate.Open();
  Finish(stream);
}

TEST(StreamTest, SynchronizeTakesAnyTimeout) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  Gate gate;
  gate.Stop(stream);
  std::jthread opener([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    gate.Open();
  });
  EXPECT_OK(Plugin().Synchronize(stream, UINT64_MAX));
}

TEST(EventTest, TellsWhetherWorkIsDone) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  OwnedEvent event;
  EXPECT_TRUE(IsDone(event)) << "it was never recorded";
  Gate gate;
  gate.Stop(stream);
  ASSERT_OK(Plugin().RecordEvent(event, stream));
  EXPECT_FALSE(IsDone(event));
  gate.Open();
  Finish(stream);
  EXPECT_TRUE(IsDone(event));
}

TEST(EventTest, OrdersTwoStreams) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream first;
  OwnedStream second;
  OwnedEvent event;
  DeviceArray<uint8_t> byte(1);
  PinnedArray<uint8_t> seen(1);
  Gate gate;
  gate.Stop(first);
  ASSERT_OK(Plugin().Fill(byte.data(), 42, 1, first));
  ASSERT_OK(Plugin().RecordEvent(event, first));
  ASSERT_OK(Plugin().WaitEvent(second, event));
  ASSERT_OK(Plugin().Copy(seen.data(), byte.data(), 1, second));
  EXPECT_EQ(Plugin().Synchronize(second, 20), onebitTimeout);
  gate.Open();
  Finish(second);
  EXPECT_EQ(seen[0], 42);
}

// A recorded event stands for its new point; streams that wait already are not affected.
TEST(EventTest, OrdersStreamsOfTwoDevices) {
  StartedPlugin();
  const Entered first_device(0);
  OwnedStream first;
  OwnedEvent event;
  DeviceArray<uint8_t> source(1);
  const Entered second_device(1);
  OwnedStream second;
  DeviceArray<uint8_t> target(1);
  Gate gate;
  {
    const Entered again(0);
    gate.Stop(first);
    ASSERT_OK(Plugin().Fill(source.data(), 5, 1, first));
    ASSERT_OK(Plugin().RecordEvent(event, first));
  }
  ASSERT_OK(Plugin().WaitEvent(second, event));
  ASSERT_OK(Plugin().Copy(target.data(), source.data(), 1, second));
  gate.Open();
  EXPECT_EQ(target.Read(second), std::vector<uint8_t>{5});
}

TEST(EventTest, ReportsABrokenDevice) {
  StartedPlugin();
  const Entered entered(1);
  OwnedStream stream;
  OwnedEvent event;
  ASSERT_OK(Plugin().RecordEvent(event, stream));
  onebitTestCudaBreak(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  int is_done = -1;
  EXPECT_ERROR(Plugin().QueryEvent(event, &is_done), onebitUnhandledCudaError,
               "work before an event: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was "
               "encountered), device 1; work that some part of this process enqueued earlier");
  EXPECT_EQ(is_done, -1);
  EXPECT_ERROR(Plugin().Synchronize(stream, 10), onebitUnhandledCudaError, "ILLEGAL_ADDRESS");
  onebitTestCudaBreak(1, CUDA_SUCCESS);
}

TEST(WaitValueTest, GoesOnAtTheValueAndBeyondIt) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  PinnedArray<uint32_t> word(1);
  const auto set = [&](uint32_t value) {
    std::atomic_ref<uint32_t>(word[0]).store(value, std::memory_order_release);
  };
  // Modulo 2^32: 3 comes after 0xfffffff0.
  set(0xffffffef);
  ASSERT_OK(Plugin().WaitValue(stream, word.data(), 0xfffffff0));
  EXPECT_EQ(Plugin().Synchronize(stream, 20), onebitTimeout);
  set(3);
  Finish(stream);
  ASSERT_OK(Plugin().WaitValue(stream, word.data(), 3));
  Finish(stream);
  ASSERT_OK(Plugin().WaitValue(stream, word.data(), 4));
  EXPECT_EQ(Plugin().Synchronize(stream, 20), onebitTimeout);
  set(4);
  Finish(stream);
}

TEST(WaitValueTest, SaysThatADeviceCannot) {
  StartedPlugin();
  const Entered entered(0);
  OwnedStream stream;
  PinnedArray<uint32_t> word(1);
  onebitTestCudaFail("cuStreamWaitValue32_v2", 0, 1, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_ERROR(Plugin().WaitValue(stream, word.data(), 1), onebitUnhandledCudaError,
               "cannot wait for values in memory");
  const uint32_t plain = 0;
  EXPECT_ERROR(Plugin().WaitValue(stream, &plain, 1), onebitUnhandledCudaError,
               "cuStreamWaitValue32: CUDA_ERROR_INVALID_VALUE");
}

TEST(StreamTest, NothingIsLeftBehind) {
  StartedPlugin();
  const Entered entered(0);
  {
    OwnedStream stream;
    OwnedEvent event;
    EXPECT_EQ(onebitTestCudaLiveStreams(), 1u);
    EXPECT_EQ(onebitTestCudaLiveEvents(), 1u);
  }
  EXPECT_EQ(onebitTestCudaLiveStreams(), 0u);
  EXPECT_EQ(onebitTestCudaLiveEvents(), 0u);
}

// Each function of the driver that can fail, with the plugin's error text.
struct Failure {
  const char* function;
  onebitResult_t (*call)(onebitStream_t stream, void* event, void* memory);
  onebitResult_t result = onebitUnhandledCudaError;
};

class DriverFailureTest : public ::testing::TestWithParam<Failure> {};

TEST_P(DriverFailureTest, IsReportedWithDeviceAndAdvice) {
  StartedPlugin();
  const Entered entered(1);
  OwnedStream stream;
  OwnedEvent event;
  DeviceArray<uint32_t> memory(64);
  onebitTestCudaFail(GetParam().function, 0, 1, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_ERROR(GetParam().call(stream, event, memory.data()), GetParam().result,
               "CUDA_ERROR_INVALID_HANDLE (invalid resource handle), device 1; does the stream "
               "exist, and does it belong to that device?");
  EXPECT_OK(GetParam().call(stream, event, memory.data()));
}

const Failure kFailures[] = {
    {"cuCtxGetCurrent",
     [](onebitStream_t, void*, void*) {
       int device = 0;
       return Plugin().CurrentDevice(&device);
     }},
    {"cuStreamCreateWithPriority",
     [](onebitStream_t, void*, void*) {
       onebitStream_t stream = nullptr;
       return Plugin().CreateStream(&stream);
     }},
    {"cuEventCreate",
     [](onebitStream_t, void*, void*) {
       void* event = nullptr;
       return Plugin().CreateEvent(&event);
     }},
    {"cuEventRecord",
     [](onebitStream_t stream, void* event, void*) { return Plugin().RecordEvent(event, stream); }},
    {"cuStreamWaitEvent",
     [](onebitStream_t stream, void* event, void*) { return Plugin().WaitEvent(stream, event); }},
    {"cuEventQuery",
     [](onebitStream_t, void* event, void*) {
       int is_done = 0;
       return Plugin().QueryEvent(event, &is_done);
     }},
    {"cuStreamQuery",
     [](onebitStream_t stream, void*, void*) { return Plugin().Synchronize(stream, kTimeoutMs); }},
    {"cuStreamIsCapturing",
     [](onebitStream_t stream, void*, void*) {
       int is_capturing = 0;
       return Plugin().IsCapturing(stream, &is_capturing);
     },
     onebitInvalidArgument},
    {"cuMemcpyAsync", [](onebitStream_t stream, void*,
                         void* memory) { return Plugin().Copy(memory, memory, 4, stream); }},
    {"cuMemsetD8Async", [](onebitStream_t stream, void*,
                           void* memory) { return Plugin().Fill(memory, 0, 4, stream); }},
    {"cuStreamWaitValue32_v2",
     [](onebitStream_t stream, void*, void* memory) {
       return Plugin().WaitValue(stream, static_cast<uint32_t*>(memory), 0xffffffff);
     }},
};

INSTANTIATE_TEST_SUITE_P(Calls, DriverFailureTest, ::testing::ValuesIn(kFailures),
                         [](const auto& info) { return std::string(info.param.function); });

}  // namespace
}  // namespace onebit::testing
