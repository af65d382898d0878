// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that the project calls, found by name in libcuda.so.1. Most
// users are built without the CUDA toolkit; where cuda.h exists, device_cuda compares it with this
// table.
#pragma once

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

#include <cstddef>
#include <string>

#ifdef __CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "a null stream is the legacy default stream: compile without per-thread default streams"
#endif

// cuda.h before CUDA 12 has no libraries and kernels.
#if defined(CUDA_VERSION) && CUDA_VERSION < 12000
using CUkernel = struct CUkern_st*;
using CUlibrary = struct CUlib_st*;
enum CUlibraryOption : unsigned;
#endif

#ifndef CUDA_VERSION  // no cuda.h
using CUcontext = struct CUctx_st*;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUevent = struct CUevent_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUlibrary = struct CUlib_st*;
using CUstream = struct CUstream_st*;
enum CUdevice_attribute : unsigned {
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
};
enum CUevent_flags : unsigned { CU_EVENT_DEFAULT = 0 };
enum CUfunction_attribute : unsigned;
enum CUjit_option : unsigned;
enum CUlibraryOption : unsigned;
enum CUpointer_attribute : unsigned;
enum CUresult : unsigned {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NOT_READY = 600
};
enum CUstreamCaptureMode : unsigned { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum CUstreamCaptureStatus : unsigned { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum CUstream_flags : unsigned { CU_STREAM_NON_BLOCKING = 1 };
#endif

namespace onebit::cuda {

// Name and parameters of each function. cuda.h maps some names to a versioned symbol by a macro
// (cuMemAlloc is cuMemAlloc_v2); this table has the symbols.
#define ONEBIT_CUDA_DRIVER_FUNCTIONS(X)                                                      \
  X(cuCtxGetCurrent, (CUcontext*))                                                           \
  X(cuCtxGetDevice, (CUdevice*))                                                             \
  X(cuCtxGetId, (CUcontext, unsigned long long*))                                            \
  X(cuCtxPopCurrent_v2, (CUcontext*))                                                        \
  X(cuCtxPushCurrent_v2, (CUcontext))                                                        \
  X(cuCtxSetCurrent, (CUcontext))                                                            \
  X(cuDeviceGet, (CUdevice*, int))                                                           \
  X(cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice))                              \
  X(cuDeviceGetCount, (int*))                                                                \
  X(cuDeviceGetName, (char*, int, CUdevice))                                                 \
  X(cuDeviceGetPCIBusId, (char*, int, CUdevice))                                             \
  X(cuDevicePrimaryCtxGetState, (CUdevice, unsigned*, int*))                                 \
  X(cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                                        \
  X(cuDeviceTotalMem_v2, (size_t*, CUdevice))                                                \
  X(cuDriverGetVersion, (int*))                                                              \
  X(cuEventCreate, (CUevent*, unsigned))                                                     \
  X(cuEventDestroy_v2, (CUevent))                                                            \
  X(cuEventElapsedTime, (float*, CUevent, CUevent))                                          \
  X(cuEventQuery, (CUevent))                                                                 \
  X(cuEventRecord, (CUevent, CUstream))                                                      \
  X(cuFuncGetAttribute, (int*, CUfunction_attribute, CUfunction))                            \
  X(cuGetErrorName, (CUresult, const char**))                                                \
  X(cuGetErrorString, (CUresult, const char**))                                              \
  X(cuInit, (unsigned))                                                                      \
  X(cuKernelGetFunction, (CUfunction*, CUkernel))                                            \
  X(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     unsigned, CUstream, void**, void**))                                    \
  X(cuLibraryGetKernel, (CUkernel*, CUlibrary, const char*))                                 \
  X(cuLibraryLoadData, (CUlibrary*, const void*, CUjit_option*, void**, unsigned,            \
                        CUlibraryOption*, void**, unsigned))                                 \
  X(cuLibraryUnload, (CUlibrary))                                                            \
  X(cuMemAlloc_v2, (CUdeviceptr*, size_t))                                                   \
  X(cuMemFreeHost, (void*))                                                                  \
  X(cuMemFree_v2, (CUdeviceptr))                                                             \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                              \
  X(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                             \
  X(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                         \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, CUfunction, int, size_t))            \
  X(cuPointerGetAttributes, (unsigned, CUpointer_attribute*, void**, CUdeviceptr))           \
  X(cuStreamCreateWithPriority, (CUstream*, unsigned, int))                                  \
  X(cuStreamDestroy_v2, (CUstream))                                                          \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                                 \
  X(cuStreamQuery, (CUstream))                                                               \
  X(cuStreamSynchronize, (CUstream))                                                         \
  X(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                        \
  X(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, unsigned, unsigned))                     \
  X(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, unsigned, unsigned))                    \
  X(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))

struct Driver {
#define ONEBIT_X(name, parameters) CUresult(*name) parameters = nullptr;
  ONEBIT_CUDA_DRIVER_FUNCTIONS(ONEBIT_X)
#undef ONEBIT_X
  // Loads a function that cuKernelGetFunction may have deferred. Since CUDA 12.4, else null.
  CUresult (*cuFuncLoad)(CUfunction) = nullptr;
};

inline constexpr char kDriverLibrary[] = "libcuda.so.1";

// Returns the driver that the program has loaded, or null: the product never loads one. It stays
// loaded until the process ends.
void* LoadedDriverLibrary();

// Looks up all functions of a driver. Returns the name of the first one that is missing, or null.
const char* FindFunctions(void* library, Driver* driver);

// CUDA's address of memory. One address space holds all memory, so host memory has one, too.
inline CUdeviceptr AddressOf(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// Formats an error: "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string ErrorText(const Driver& driver, CUresult error);

// Makes a context current in this thread, and restores the previous one at the end.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context)
      : driver_(driver), result_(driver.cuCtxPushCurrent_v2(context)) {}
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (is_alive() && !is_kept_) driver_.cuCtxPopCurrent_v2(&popped);
  }

  // CUDA's error if the context could not be made current.
  CUresult result() const { return result_; }
  // False if the context is destroyed, with its device's memory and all work; this is so during
  // process exit.
  bool is_alive() const { return result_ == CUDA_SUCCESS; }
  // Leaves the context current.
  void Keep() { is_kept_ = true; }

 private:
  const Driver& driver_;
  const CUresult result_;
  bool is_kept_ = false;
};

// While any thread captures a graph in CUDA's default mode, calls that could wait for a device,
// such as allocations or queries, fail and break that capture. Our calls touch no captured stream,
// so while this object lives they neither fail nor break one.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver)
      : driver_(driver),
        is_set_(driver.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (is_set_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  const Driver& driver_;
  // The constructor swaps this with the thread's previous mode.
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool is_set_;
};

}  // namespace onebit::cuda
