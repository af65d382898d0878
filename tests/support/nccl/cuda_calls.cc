// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds functions by name in the driver that the process has loaded.
#include "tests/support/nccl/cuda_calls.h"

#include <dlfcn.h>

namespace onebit::testing::nccl {
namespace {

template <typename Function>
Function Find(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(driver, name));
}

}  // namespace

bool GetCurrentDevice(int* device, CUctx_st** context) {
  const auto get_device = Find<int (*)(int*)>("cuCtxGetDevice");
  const auto get_context = Find<int (*)(CUctx_st**)>("cuCtxGetCurrent");
  return get_device != nullptr && get_context != nullptr && get_device(device) == 0 &&
         get_context(context) == 0;
}

WithContext::WithContext(CUctx_st* context) {
  Find<int (*)(CUctx_st*)>("cuCtxPushCurrent_v2")(context);
}

WithContext::~WithContext() {
  CUctx_st* popped = nullptr;
  Find<int (*)(CUctx_st**)>("cuCtxPopCurrent_v2")(&popped);
}

void AllowDeviceMemory() {
  if (const auto open_memory = Find<int (*)(int)>("onebitTestCudaOpenMemory")) open_memory(1);
}

int Enqueue(CUstream_st* stream, void (*function)(void* data), void* data) {
  return Find<int (*)(CUstream_st*, void (*)(void*), void*)>("onebitTestCudaEnqueue")(
      stream, function, data);
}

bool IsCapturing(CUstream_st* stream) {
  int status = 0;
  const auto is_capturing = Find<int (*)(CUstream_st*, int*)>("cuStreamIsCapturing");
  return is_capturing != nullptr && is_capturing(stream, &status) == 0 && status != 0;
}

}  // namespace onebit::testing::nccl
