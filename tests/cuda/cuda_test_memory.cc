// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/cuda_test_memory.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace onebit::testing {
namespace {

// Most tests compare dense results and sent bytes with those of other transports. Set before the
// library reads its settings.
[[maybe_unused]] const int settings = setenv("ONEBIT_NCCL_NATIVE_DENSE", "0", 0);

}  // namespace

void CheckCuda(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string(what) + ": " + (name == nullptr ? "unknown error" : name));
}

void UseCudaDevice(int device) {
  CheckCuda(cuInit(0), "cuInit");
  CUdevice handle = 0;
  CheckCuda(cuDeviceGet(&handle, device), "cuDeviceGet");
  CUcontext context = nullptr;
  CheckCuda(cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
  CheckCuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

int CudaDeviceCount() {
  int count = 0;
  CheckCuda(cuInit(0), "cuInit");
  CheckCuda(cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

CudaBuffer::CudaBuffer(size_t bytes) : bytes_(bytes) {
  CheckCuda(cuMemAlloc(&memory_, bytes == 0 ? 1 : bytes), "cuMemAlloc");
}

CudaBuffer::CudaBuffer(std::span<const std::byte> content, size_t shift)
    : shift_(shift), bytes_(content.size()) {
  CheckCuda(cuMemAlloc(&memory_, content.size() + shift + 1), "cuMemAlloc");
  Write(content);
}

CudaBuffer::CudaBuffer(CudaBuffer&& other) noexcept
    : memory_(std::exchange(other.memory_, 0)), shift_(other.shift_), bytes_(other.bytes_) {}

CudaBuffer::~CudaBuffer() {
  if (memory_ != 0) cuMemFree(memory_);
}

void CudaBuffer::Write(std::span<const std::byte> content) {
  if (content.empty()) return;
  CheckCuda(cuMemcpyHtoD(memory_ + shift_, content.data(), content.size()), "cuMemcpyHtoD");
  // The copy may not have arrived yet, and streams that do not wait for it would not see it.
  CheckCuda(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

std::vector<std::byte> CudaBuffer::Read() const {
  std::vector<std::byte> content(bytes_);
  if (bytes_ != 0)
    CheckCuda(cuMemcpyDtoH(content.data(), memory_ + shift_, bytes_), "cuMemcpyDtoH");
  return content;
}

CudaStream::CudaStream(int priority) {
  CheckCuda(cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority),
            "cuStreamCreateWithPriority");
}

CudaStream::~CudaStream() { cuStreamDestroy(stream_); }

void CudaStream::Synchronize() const {
  CheckCuda(cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

bool CudaStream::IsIdle() const {
  const CUresult result = cuStreamQuery(stream_);
  if (result != CUDA_ERROR_NOT_READY) CheckCuda(result, "cuStreamQuery");
  return result == CUDA_SUCCESS;
}

void CudaGraph::Begin(const CudaStream& stream) {
  // Ranks that are threads of this process continue meanwhile.
  CheckCuda(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            "cuStreamBeginCapture");
}

CudaGraph::CudaGraph(const CudaStream& stream) {
  CUgraph graph = nullptr;
  CheckCuda(cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
  CheckCuda(cuGraphInstantiate(&graph_, graph, 0), "cuGraphInstantiate");
  CheckCuda(cuGraphDestroy(graph), "cuGraphDestroy");
}

CudaGraph::~CudaGraph() { cuGraphExecDestroy(graph_); }

void CudaGraph::Launch(const CudaStream& stream) const {
  CheckCuda(cuGraphLaunch(graph_, stream.get()), "cuGraphLaunch");
}

}  // namespace onebit::testing
