// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Driver: the functions of the CUDA driver, found by name in the library that the program loaded.
#pragma once

#include <cuda.h>

#include <string>
#include <string_view>

#ifdef __CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "a null stream is the legacy default stream: compile without per-thread default streams"
#endif

namespace onebit::device_cuda {

// The symbols in the library. cuda.h maps some functions to a versioned symbol by a macro
// (cuMemAlloc is cuMemAlloc_v2); this list has the versioned symbol, as cuda_driver.cc checks.
#define ONEBIT_CUDA_DRIVER_FUNCTIONS(X)          \
  X(cuCtxGetCurrent)                             \
  X(cuCtxGetDevice)                              \
  X(cuCtxGetId)                                  \
  X(cuCtxPopCurrent_v2)                          \
  X(cuCtxPushCurrent_v2)                         \
  X(cuDeviceGet)                                 \
  X(cuDeviceGetAttribute)                        \
  X(cuDeviceGetCount)                            \
  X(cuDeviceGetName)                             \
  X(cuDeviceGetPCIBusId)                         \
  X(cuDevicePrimaryCtxGetState)                  \
  X(cuDevicePrimaryCtxRetain)                    \
  X(cuDeviceTotalMem_v2)                         \
  X(cuDriverGetVersion)                          \
  X(cuEventCreate)                               \
  X(cuEventDestroy_v2)                           \
  X(cuEventQuery)                                \
  X(cuEventRecord)                               \
  X(cuFuncGetAttribute)                          \
  X(cuGetErrorName)                              \
  X(cuGetErrorString)                            \
  X(cuInit)                                      \
  X(cuKernelGetFunction)                         \
  X(cuLaunchKernel)                              \
  X(cuLibraryGetKernel)                          \
  X(cuLibraryLoadData)                           \
  X(cuLibraryUnload)                             \
  X(cuMemAlloc_v2)                               \
  X(cuMemFreeHost)                               \
  X(cuMemFree_v2)                                \
  X(cuMemHostAlloc)                              \
  X(cuMemcpyAsync)                               \
  X(cuMemsetD8Async)                             \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuPointerGetAttributes)                      \
  X(cuStreamCreateWithPriority)                  \
  X(cuStreamDestroy_v2)                          \
  X(cuStreamIsCapturing)                         \
  X(cuStreamQuery)                               \
  X(cuStreamWaitEvent)                           \
  X(cuStreamWaitValue32_v2)                      \
  X(cuThreadExchangeStreamCaptureMode)

struct Driver {
#define ONEBIT_X(name) decltype(&::name) name = nullptr;
  ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X
  // Loads a function that cuKernelGetFunction may have deferred. Since CUDA 12.4, else null.
  CUresult (*cuFuncLoad)(CUfunction) = nullptr;
};

// CUDA 12.0. The kernels also need a driver of the major version of the toolkit that compiled them,
// which is checked when they are loaded.
inline constexpr int kMinDriverVersion = 12000;

// Fills in `driver` from the libcuda.so.1 that the program has loaded and initialises it. Never
// loads a library. Returns "" or why no driver is usable.
std::string FindDriver(Driver* driver);

// Formats an error: "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string DescribeError(const Driver& driver, CUresult error);

}  // namespace onebit::device_cuda
