// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The only file with {fmt}'s code, which is header-only here, so that no {fmt} library is needed.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include "plugins/device_cuda/error.h"

#include <algorithm>
#include <cstring>

namespace onebit::device_cuda {
namespace {

// Trivially destructible, so that it exists until the thread ends.
thread_local char last_error[1024];

const char* Advice(CUresult error) {
  switch (static_cast<int>(error)) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "; free memory there, or use fewer or smaller compressors";
    case CUDA_ERROR_DEINITIALIZED:
      return "; the process is exiting, and the driver has shut down already";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "; the kernels are for compute capability 8.0 and later, those of 10.0 and later need "
             "a driver as new as the CUDA toolkit that compiled onebit";
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_SOURCE:
      return "; the kernels need a driver at least as new as the major version of the CUDA toolkit "
             "that onebit was built with";
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return "; does the stream exist, and does it belong to that device?";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_CAPTURED_EVENT:
      return "; a stream is being captured into a graph, which does not allow it";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return "; work that some part of this process enqueued earlier broke the device's context: "
             "end the process (compute-sanitizer finds the cause)";
    default:
      return "";
  }
}

}  // namespace

std::string FormatText(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

const char* LastError() { return last_error; }

onebitResult_t SetError(onebitResult_t result, std::string_view text) {
  const size_t bytes = std::min(text.size(), sizeof last_error - 1);
  std::memcpy(last_error, text.data(), bytes);
  last_error[bytes] = '\0';
  return result;
}

onebitResult_t SetCudaError(const Driver& driver, CUresult error, std::string_view what) {
  std::string text = Text("{}: {}", what, cuda::ErrorText(driver, error));
  CUdevice device = -1;
  if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    text += Text(", device {}", device);
  }
  text += Advice(error);
  return SetError(error == CUDA_ERROR_OUT_OF_MEMORY ? onebitOutOfMemory : onebitUnhandledCudaError,
                  text);
}

}  // namespace onebit::device_cuda
