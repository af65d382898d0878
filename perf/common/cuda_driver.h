// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver that tools use. They are found by name at run time, so a tool
// needs no part of CUDA to be built, or to run on host memory. The declarations are a small part of
// the driver's stable ABI.
#pragma once

#include <cstddef>
#include <string>

#include "onebit/onebit.h"
#include "perf/common/tool_error.h"

struct CUctx_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace onebit::perf {

// CUDA cannot be used: there is no driver, or no device.
class NoCudaError : public ToolError {
 public:
  explicit NoCudaError(const std::string& text) : ToolError(text) {}
};

using CudaAddress = unsigned long long;  // the driver's type of an address on a device
using CudaContext = CUctx_st*;
using CudaEventHandle = CUevent_st*;

// Name and parameters of each function.
#define ONEBIT_CUDA_FUNCTIONS(X)                                                            \
  X(cuCtxGetCurrent, (CudaContext * context))                                               \
  X(cuCtxPopCurrent_v2, (CudaContext * context))                                            \
  X(cuCtxPushCurrent_v2, (CudaContext context))                                             \
  X(cuCtxSetCurrent, (CudaContext context))                                                 \
  X(cuDeviceGet, (int* device, int number))                                                 \
  X(cuDeviceGetAttribute, (int* value, int attribute, int device))                          \
  X(cuDeviceGetCount, (int* count))                                                         \
  X(cuDeviceGetName, (char* name, int capacity, int device))                                \
  X(cuDevicePrimaryCtxRetain, (CudaContext * context, int device))                          \
  X(cuDeviceTotalMem_v2, (size_t * bytes, int device))                                      \
  X(cuEventCreate, (CudaEventHandle * event, unsigned flags))                               \
  X(cuEventDestroy_v2, (CudaEventHandle event))                                             \
  X(cuEventElapsedTime, (float* milliseconds, CudaEventHandle from, CudaEventHandle to))    \
  X(cuEventRecord, (CudaEventHandle event, onebitStream_t stream))                          \
  X(cuGetErrorName, (int error, const char** name))                                         \
  X(cuGetErrorString, (int error, const char** text))                                       \
  X(cuInit, (unsigned flags))                                                               \
  X(cuMemAlloc_v2, (CudaAddress * address, size_t bytes))                                   \
  X(cuMemFree_v2, (CudaAddress address))                                                    \
  X(cuMemcpyAsync, (CudaAddress to, CudaAddress from, size_t bytes, onebitStream_t stream)) \
  X(cuMemsetD8Async,                                                                        \
    (CudaAddress memory, unsigned char value, size_t bytes, onebitStream_t stream))         \
  X(cuStreamCreate, (onebitStream_t * stream, unsigned flags))                              \
  X(cuStreamDestroy_v2, (onebitStream_t stream))                                            \
  X(cuStreamQuery, (onebitStream_t stream))                                                 \
  X(cuStreamSynchronize, (onebitStream_t stream))

struct CudaDriver {
#define ONEBIT_X(name, parameters) int(*name) parameters;
  ONEBIT_CUDA_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X

  // Returns the driver, which the first call loads and starts. Throws NoCudaError, the same each
  // time.
  static const CudaDriver& Get();
  // Returns the driver, or null where Get would throw.
  static const CudaDriver* Find();

  // Throws ToolError with CUDA's name of the error; `done` says what failed.
  void Check(int result, const std::string& done) const;
  std::string TextOf(int result) const;
};

inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaNotReady = 600;

}  // namespace onebit::perf
