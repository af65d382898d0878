// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tests the stand-in for the CUDA driver: it must be as strict as CUDA, or other tests prove
// little.
#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

// A program that uses device 0 through the driver.
class CudaStandInTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&memory, 16), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&pinned, 16, 0), CUDA_SUCCESS);
  }

  void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
  }
  CUresult End() {
    CUgraph graph = nullptr;
    const CUresult result = cuStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
    if (graph != nullptr) cuGraphDestroy(graph);
    return result;
  }
  // Expects this error during a capture of this thread, and the end of the capture.
  void ExpectBreaksCapture(CUresult error, const std::function<CUresult()>& call) {
    Begin();
    EXPECT_EQ(call(), error);
    EXPECT_EQ(cuMemsetD8Async(memory, 0, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cuMemsetD8Async(memory, 0, 1, stream), CUDA_SUCCESS) << "the stream works again";
  }
  uint32_t* word() { return static_cast<uint32_t*>(pinned); }
  void StopStream(CUstream stopped) {
    ASSERT_EQ(cuStreamWaitValue32(stopped, reinterpret_cast<CUdeviceptr>(pinned), 1,
                                  CU_STREAM_WAIT_VALUE_GEQ),
              CUDA_SUCCESS);
  }
  void OpenGate() { std::atomic_ref<uint32_t>(*word()).store(1, std::memory_order_release); }

  CUstream stream = nullptr;
  CUstream side = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
};

TEST_F(CudaStandInTest, CapturesForbidWhatTheyCannotSee) {
  char pageable[4];
  const auto unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  ExpectBreaksCapture(unsupported, [&] { return cuMemAlloc(&memory, 4); });
  ExpectBreaksCapture(unsupported, [&] { return cuMemFree(memory); });
  ExpectBreaksCapture(unsupported, [&] { return cuMemHostAlloc(&pinned, 4, 0); });
  ExpectBreaksCapture(unsupported, [&] { return cuMemFreeHost(pinned); });
  ExpectBreaksCapture(unsupported, [&] { return cuStreamQuery(stream); });
  ExpectBreaksCapture(unsupported, [&] { return cuStreamQuery(side); });
  ExpectBreaksCapture(unsupported, [&] { return cuStreamSynchronize(stream); });
  ExpectBreaksCapture(unsupported, [&] { return cuStreamSynchronize(side); });
  ExpectBreaksCapture(unsupported, [&] { return cuCtxSynchronize(); });
  ExpectBreaksCapture(unsupported, [&] { return cuEventQuery(event); });
  ExpectBreaksCapture(unsupported, [&] { return cuEventSynchronize(event); });
  ExpectBreaksCapture(unsupported, [&] { return cuMemcpyHtoD(memory, pageable, 4); });
  ExpectBreaksCapture(unsupported, [&] {
    return cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(pageable), 4, stream);
  });
}

TEST_F(CudaStandInTest, CapturedEventsCannotBeAsked) {
  ExpectBreaksCapture(CUDA_ERROR_CAPTURED_EVENT, [&] {
    EXPECT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    const CUresult result = cuEventQuery(event);
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    return result;
  });
}

TEST_F(CudaStandInTest, GlobalCapturesBindAllThreadsOthersTheirOwn) {
  const auto allocate_elsewhere = [] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUcontext context = nullptr;
      cuDevicePrimaryCtxRetain(&context, 0);
      cuCtxSetCurrent(context);
      CUdeviceptr allocated = 0;
      result = cuMemAlloc(&allocated, 4);
    }).join();
    return result;
  };
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(allocate_elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(allocate_elsewhere(), CUDA_SUCCESS);
  EXPECT_EQ(End(), CUDA_SUCCESS);

  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUdeviceptr allocated = 0;
  EXPECT_EQ(cuMemAlloc(&allocated, 4), CUDA_SUCCESS);
  EXPECT_EQ(End(), CUDA_SUCCESS);
}

TEST_F(CudaStandInTest, CapturesMustBeJoinedAndKeptApart) {
  Begin();
  EXPECT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(side, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(memory, 0, 1, side), CUDA_SUCCESS);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

  EXPECT_EQ(cuEventRecord(event, side), CUDA_SUCCESS);
  Begin();
  EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(End(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_F(CudaStandInTest, TheLegacyStreamDisturbsCapturesOfBlockingStreamsOnly) {
  Begin();
  EXPECT_EQ(cuMemsetD8Async(memory, 0, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(End(), CUDA_SUCCESS);

  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(memory, 0, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CudaStandInTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  StopStream(blocking);
  ASSERT_EQ(cuMemsetD8Async(memory, 1, 1, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8Async(memory, 1, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  OpenGate();
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(blocking), CUDA_SUCCESS);

  word()[0] = 0;
  StopStream(nullptr);
  ASSERT_EQ(cuMemsetD8Async(memory, 1, 1, blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  OpenGate();
  EXPECT_EQ(cuStreamSynchronize(blocking), CUDA_SUCCESS);
}

TEST_F(CudaStandInTest, HostFunctionsMayNotCallCuda) {
  struct Seen {
    CUresult result = CUDA_SUCCESS;
  } seen;
  ASSERT_EQ(cuLaunchHostFunc(
                stream,
                [](void* data) {
                  CUdevice device = 0;
                  static_cast<Seen*>(data)->result = cuCtxGetDevice(&device);
                },
                &seen),
            CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen.result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(CudaStandInTest, DeviceFunctionsOfTestsRunInOrderAndInGraphs) {
  struct Adder {
    uint8_t* byte;
  } adder{reinterpret_cast<uint8_t*>(memory)};
  const auto add = [](void* data) { ++*static_cast<Adder*>(data)->byte; };
  ASSERT_EQ(cuMemsetD8Async(memory, 5, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(onebitTestCudaEnqueue(stream, add, &adder), CUDA_SUCCESS);
  Begin();
  ASSERT_EQ(onebitTestCudaEnqueue(stream, add, &adder), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  uint8_t byte = 0;
  ASSERT_EQ(cuMemcpyDtoH(&byte, memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 8);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CudaStandInTest, AFullStreamMakesTheHostWait) {
  StopStream(stream);
  std::thread opener([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    OpenGate();
  });
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(cuMemsetD8Async(memory, static_cast<unsigned char>(i), 1, stream), CUDA_SUCCESS);
  }
  opener.join();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  uint8_t byte = 0;
  ASSERT_EQ(cuMemcpyDtoH(&byte, memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, static_cast<uint8_t>(1999));
}

TEST_F(CudaStandInTest, CountsWhatWaits) {
  onebitTestCudaCounts before;
  onebitTestCudaGetCounts(&before);
  char pageable[4] = {};
  ASSERT_EQ(cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(pinned), 4, stream), CUDA_SUCCESS);
  onebitTestCudaCounts after;
  onebitTestCudaGetCounts(&after);
  EXPECT_EQ(after.host_waits, before.host_waits);
  ASSERT_EQ(cuMemcpyAsync(memory, reinterpret_cast<CUdeviceptr>(pageable), 4, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(memory), CUDA_SUCCESS);
  onebitTestCudaGetCounts(&after);
  EXPECT_EQ(after.host_waits, before.host_waits + 3);
  EXPECT_EQ(after.frees, before.frees + 1);
}

TEST_F(CudaStandInTest, RefusesStreamsAndEventsOfOtherContexts) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamWaitEvent(nullptr, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(&other), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(side), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(side), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace onebit::testing
