// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Driver: the few functions of the CUDA driver that the transport calls itself.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <memory>
#include <string>

namespace onebit::nccl {

using DeviceContext = struct CUctx_st*;
using DevicePointer = unsigned long long;

// Values of CUresult.
constexpr int kCudaSuccess = 0;
constexpr int kCudaDeinitialized = 4;
constexpr int kCudaInvalidContext = 201;
constexpr int kCudaNotReady = 600;

constexpr int kNoCapture = 0;       // CU_STREAM_CAPTURE_STATUS_NONE
constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

constexpr unsigned kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING

// Functions return a CUresult. A NULL stream is the legacy default stream.
struct Driver {
  int (*CtxGetCurrent)(DeviceContext* context) = nullptr;
  int (*CtxGetDevice)(int* device) = nullptr;
  int (*CtxPushCurrent)(DeviceContext context) = nullptr;
  int (*CtxPopCurrent)(DeviceContext* context) = nullptr;
  int (*DeviceGetPCIBusId)(char* text, int capacity, int device) = nullptr;
  int (*GetErrorName)(int result, const char** name) = nullptr;
  int (*MemAlloc)(DevicePointer* memory, size_t bytes) = nullptr;
  int (*MemFree)(DevicePointer memory) = nullptr;
  int (*MemcpyAsync)(DevicePointer to, DevicePointer from, size_t bytes,
                     onebitStream_t stream) = nullptr;
  int (*StreamCreate)(onebitStream_t* stream, unsigned flags) = nullptr;
  int (*StreamIsCapturing)(onebitStream_t stream, int* status) = nullptr;
  int (*StreamQuery)(onebitStream_t stream) = nullptr;
  int (*StreamDestroy)(onebitStream_t stream) = nullptr;
  int (*ThreadExchangeStreamCaptureMode)(int* mode) = nullptr;

  // Returns the driver that the process has loaded. Null if it has none; `problem` then says so.
  static std::shared_ptr<const Driver> Find(std::string* problem);

  // True if work on the stream becomes part of a graph. Also false if the stream cannot tell, since
  // it accepts no work either.
  bool IsCapturing(onebitStream_t stream) const;
  // The name of a result: "CUDA_ERROR_NOT_READY".
  std::string Name(int result) const;
};

// Makes a context current in this thread, and restores the previous one at the end.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, DeviceContext context)
      : driver_(driver), result_(driver.CtxPushCurrent(context)) {}
  ~CurrentContext() {
    DeviceContext popped = nullptr;
    if (result_ == kCudaSuccess) driver_.CtxPopCurrent(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  // False if the context is destroyed, with its device's memory and all work; this is so during
  // process exit.
  bool is_alive() const { return result_ == kCudaSuccess; }

 private:
  const Driver& driver_;
  const int result_;
};

// While any thread captures a graph in CUDA's default mode, calls that could wait for a device,
// such as allocations or stream queries, fail and break that capture. Our calls touch no captured
// stream, so while this object lives they neither fail nor break one.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver)
      : driver_(driver), is_set_(driver.ThreadExchangeStreamCaptureMode(&mode_) == kCudaSuccess) {}
  ~RelaxedCapture() {
    if (is_set_) driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kRelaxedCapture;  // afterwards the thread's previous mode
  const bool is_set_;
};

}  // namespace onebit::nccl
