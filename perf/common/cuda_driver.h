// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver that tools use, found by name, so that a tool needs nothing of
// CUDA to be built or to run on host memory. What is declared here is a small part of the driver's
// interface, which does not change.
#pragma once

#include <cstddef>
#include <string>

#include "onebit/onebit.h"
#include "perf/common/error.h"

struct CUctx_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace onebit::perf {

// There is no CUDA to use: no driver, or no device.
class NoCudaError : public ToolError {
 public:
  explicit NoCudaError(const std::string& text) : ToolError(text) {}
};

using CudaAddress = unsigned long long;  // the driver's type of an address on a device
using CudaContext = CUctx_st*;
using CudaEventHandle = CUevent_st*;

struct CudaDriver {
  int (*cuCtxGetCurrent)(CudaContext* context);
  int (*cuCtxPopCurrent_v2)(CudaContext* context);
  int (*cuCtxPushCurrent_v2)(CudaContext context);
  int (*cuCtxSetCurrent)(CudaContext context);
  int (*cuDeviceGet)(int* device, int number);
  int (*cuDeviceGetAttribute)(int* value, int attribute, int device);
  int (*cuDeviceGetCount)(int* count);
  int (*cuDeviceGetName)(char* name, int capacity, int device);
  int (*cuDevicePrimaryCtxRetain)(CudaContext* context, int device);
  int (*cuDeviceTotalMem_v2)(size_t* bytes, int device);
  int (*cuEventCreate)(CudaEventHandle* event, unsigned flags);
  int (*cuEventDestroy_v2)(CudaEventHandle event);
  int (*cuEventElapsedTime)(float* milliseconds, CudaEventHandle from, CudaEventHandle to);
  int (*cuEventRecord)(CudaEventHandle event, onebitStream_t stream);
  int (*cuGetErrorName)(int error, const char** name);
  int (*cuGetErrorString)(int error, const char** text);
  int (*cuInit)(unsigned flags);
  int (*cuMemAlloc_v2)(CudaAddress* address, size_t bytes);
  int (*cuMemFree_v2)(CudaAddress address);
  int (*cuMemcpyAsync)(CudaAddress to, CudaAddress from, size_t bytes, onebitStream_t stream);
  int (*cuMemsetD8Async)(CudaAddress memory, unsigned char value, size_t bytes,
                         onebitStream_t stream);
  int (*cuStreamCreate)(onebitStream_t* stream, unsigned flags);
  int (*cuStreamDestroy_v2)(onebitStream_t stream);
  int (*cuStreamQuery)(onebitStream_t stream);
  int (*cuStreamSynchronize)(onebitStream_t stream);

  // The driver, loaded and started by the first call. Throws NoCudaError, the same each time.
  static const CudaDriver& Get();
  // The same, or null.
  static const CudaDriver* Find();

  // Throws ToolError with CUDA's name of the error and what was `done`.
  void Check(int result, const std::string& done) const;
  std::string TextOf(int result) const;
};

inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaNotReady = 600;

}  // namespace onebit::perf
