// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of the driver, each checked.
#include "tests/nccl/device.h"

#include <cstdlib>
#include <mutex>
#include <string>

namespace onebit::testing {
namespace {

CUcontext ContextOf(int device) {
  static std::once_flag has_started;
  std::call_once(has_started, [] {
    setenv("CUDA_STAND_IN_DEVICES", std::to_string(kDevices).c_str(), 1);
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  });
  CUcontext context = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  return context;
}

}  // namespace

UseDevice::UseDevice(int device) { EXPECT_EQ(cuCtxPushCurrent(ContextOf(device)), CUDA_SUCCESS); }

UseDevice::~UseDevice() {
  CUcontext popped = nullptr;
  EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
}

Stream::Stream() { EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS); }

Stream::~Stream() { EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS); }

void Stream::Await() const { EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); }

bool Stream::IsIdle() const { return cuStreamQuery(stream_) == CUDA_SUCCESS; }

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  EXPECT_EQ(cuMemAlloc(&memory_, bytes), CUDA_SUCCESS);
}

Buffer::~Buffer() { EXPECT_EQ(cuMemFree(memory_), CUDA_SUCCESS); }

void Buffer::Copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Stream& stream) {
  EXPECT_EQ(cuMemcpyAsync(to, from, bytes, stream), CUDA_SUCCESS);
  stream.Await();
}

Graph::~Graph() {
  EXPECT_EQ(cuGraphExecDestroy(executable_), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph_), CUDA_SUCCESS);
}

void Graph::End(const Stream& stream) {
  EXPECT_EQ(cuStreamEndCapture(stream, &graph_), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiate(&executable_, graph_, 0), CUDA_SUCCESS);
}

void Graph::Launch(const Stream& stream) const {
  EXPECT_EQ(cuGraphLaunch(executable_, stream), CUDA_SUCCESS);
}

}  // namespace onebit::testing
