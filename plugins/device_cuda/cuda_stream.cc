// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/cuda_stream.h"

#include <chrono>

#include "plugins/device_cuda/error.h"
#include "wait/backoff.h"

namespace onebit::device_cuda {
namespace {

using Clock = std::chrono::steady_clock;

CUevent EventOf(void* event) { return static_cast<CUevent>(event); }

// The device has no attribute for these functions with 32 bits; every later driver has them.
onebitResult_t CheckValue(const Driver& driver, CUresult result, const char* function) {
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    return Fail(onebitUnhandledCudaError,
                "streams of this CUDA device cannot wait for values in memory or write them ({} is "
                "not supported here), which onebit needs for a transport that runs on the host: "
                "use transport nccl, or host memory",
                function);
  }
  return Check(driver, result, "{}", function);
}

}  // namespace

onebitResult_t CreateStream(Process& process, onebitStream_t* stream) {
  const Driver& driver = process.driver();
  const RelaxedCapture relaxed(driver);
  CUstream created = nullptr;
  // CUDA clamps this to the highest priority. Such streams do not share a hardware queue with those
  // of the application, one of which may be waiting for another rank.
  constexpr int kHighest = -1000;
  ONEBIT_CUDA_TRY(
      Check(driver, driver.cuStreamCreateWithPriority(&created, CU_STREAM_NON_BLOCKING, kHighest),
            "cuStreamCreateWithPriority"));
  *stream = created;
  return onebitSuccess;
}

void DestroyStream(Process& process, onebitStream_t stream) {
  if (stream == nullptr) return;
  const RelaxedCapture relaxed(process.driver());
  process.driver().cuStreamDestroy_v2(stream);
}

onebitResult_t CreateEvent(Process& process, void** event) {
  const Driver& driver = process.driver();
  const RelaxedCapture relaxed(driver);
  CUevent created = nullptr;
  ONEBIT_CUDA_TRY(
      Check(driver, driver.cuEventCreate(&created, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  *event = created;
  return onebitSuccess;
}

void DestroyEvent(Process& process, void* event) {
  if (event == nullptr) return;
  const RelaxedCapture relaxed(process.driver());
  process.driver().cuEventDestroy_v2(EventOf(event));
}

onebitResult_t RecordEvent(Process& process, void* event, onebitStream_t stream) {
  const Driver& driver = process.driver();
  return Check(driver, driver.cuEventRecord(EventOf(event), stream), "cuEventRecord");
}

onebitResult_t WaitEvent(Process& process, onebitStream_t stream, void* event) {
  const Driver& driver = process.driver();
  return Check(driver, driver.cuStreamWaitEvent(stream, EventOf(event), CU_EVENT_WAIT_DEFAULT),
               "cuStreamWaitEvent");
}

onebitResult_t QueryEvent(Process& process, void* event, int* is_done) {
  const Driver& driver = process.driver();
  const RelaxedCapture relaxed(driver);
  const CUresult result = driver.cuEventQuery(EventOf(event));
  if (result == CUDA_ERROR_NOT_READY) {
    *is_done = 0;
    return onebitSuccess;
  }
  ONEBIT_CUDA_TRY(Check(driver, result, "work before an event"));
  *is_done = 1;
  return onebitSuccess;
}

onebitResult_t IsCapturing(Process& process, onebitStream_t stream, int* is_capturing) {
  const Driver& driver = process.driver();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver.cuStreamIsCapturing(stream, &status);
  const onebitResult_t checked = Check(driver, result, "cuStreamIsCapturing");
  // This is the first query of a caller's stream: an invalid stream is the caller's error, not one
  // of the device.
  if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
    return onebitInvalidArgument;
  }
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return onebitInvalidUsage;
  ONEBIT_CUDA_TRY(checked);
  *is_capturing = status != CU_STREAM_CAPTURE_STATUS_NONE ? 1 : 0;
  return onebitSuccess;
}

onebitResult_t Synchronize(Process& process, onebitStream_t stream, uint64_t timeout_ms) {
  const Driver& driver = process.driver();
  // Querying a stream that is being captured would break the capture.
  int is_capturing = 0;
  ONEBIT_CUDA_TRY(IsCapturing(process, stream, &is_capturing));
  if (is_capturing != 0) {
    return Fail(onebitInvalidUsage,
                "a stream that is being captured into a graph cannot be waited for: nothing in it "
                "runs before the graph is launched");
  }
  const RelaxedCapture relaxed(driver);
  const PollDeadline deadline = DeadlineAfter(timeout_ms);
  for (Backoff backoff;; backoff.Pause()) {
    const CUresult result = driver.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY) {
      return Check(driver, result, "work in a stream");
    }
    if (Clock::now() >= deadline) {
      return Fail(onebitTimeout, "the CUDA stream has not finished its work within {} ms",
                  timeout_ms);
    }
  }
}

onebitResult_t WaitValue(Process& process, onebitStream_t stream, const uint32_t* word,
                         uint32_t value) {
  const Driver& driver = process.driver();
  return CheckValue(driver,
                    driver.cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(word),
                                                  value, CU_STREAM_WAIT_VALUE_GEQ),
                    "cuStreamWaitValue32");
}

onebitResult_t WriteValue(Process& process, onebitStream_t stream, uint32_t* word, uint32_t value) {
  const Driver& driver = process.driver();
  return CheckValue(driver,
                    driver.cuStreamWriteValue32_v2(stream, reinterpret_cast<CUdeviceptr>(word),
                                                   value, CU_STREAM_WRITE_VALUE_DEFAULT),
                    "cuStreamWriteValue32");
}

}  // namespace onebit::device_cuda
