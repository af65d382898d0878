// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA driver functions that name errors.
#include "tests/support/cuda/driver_calls.h"

namespace onebit::testing::cuda {
namespace {

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};

#define ONEBIT_X(error, text) {error, #error, text},
constexpr ErrorText kErrors[] = {
    ONEBIT_X(CUDA_SUCCESS, "no error") ONEBIT_X(
        CUDA_ERROR_INVALID_VALUE,
        "invalid argument") ONEBIT_X(CUDA_ERROR_OUT_OF_MEMORY,
                                     "out of memory") ONEBIT_X(CUDA_ERROR_NOT_INITIALIZED,
                                                               "initialization error")
        ONEBIT_X(CUDA_ERROR_DEINITIALIZED, "driver shutting down") ONEBIT_X(
            CUDA_ERROR_NO_DEVICE,
            "no CUDA-capable device is detected") ONEBIT_X(CUDA_ERROR_INVALID_DEVICE,
                                                           "invalid device ordinal")
            ONEBIT_X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid") ONEBIT_X(
                CUDA_ERROR_INVALID_CONTEXT,
                "invalid device context") ONEBIT_X(CUDA_ERROR_NO_BINARY_FOR_GPU,
                                                   "no kernel image is available for execution on "
                                                   "the device")
                ONEBIT_X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") ONEBIT_X(
                    CUDA_ERROR_ILLEGAL_STATE,
                    "the operation cannot be performed in the present state")
                    ONEBIT_X(CUDA_ERROR_NOT_FOUND, "named symbol not found") ONEBIT_X(
                        CUDA_ERROR_NOT_READY,
                        "device not ready") ONEBIT_X(CUDA_ERROR_ILLEGAL_ADDRESS,
                                                     "an illegal memory access was encountered")
                        ONEBIT_X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed") ONEBIT_X(
                            CUDA_ERROR_NOT_PERMITTED, "operation not permitted")
                            ONEBIT_X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported") ONEBIT_X(
                                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                "operation not permitted when stream is capturing")
                                ONEBIT_X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                                         "operation failed due to a previous error during capture")
                                    ONEBIT_X(
                                        CUDA_ERROR_STREAM_CAPTURE_MERGE,
                                        "operation would result in a merge of separate capture "
                                        "sequences") ONEBIT_X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                                                              "capture was not ended in the same "
                                                              "stream")
                                        ONEBIT_X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                                                 "capturing stream has unjoined work")
                                            ONEBIT_X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                                                     "dependency created on uncaptured work in "
                                                     "another stream")
                                                ONEBIT_X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                                         "operation would make the legacy stream "
                                                         "depend on a capturing blocking stream")
                                                    ONEBIT_X(CUDA_ERROR_CAPTURED_EVENT,
                                                             "operation not permitted on an event "
                                                             "last recorded in a capturing stream")
                                                        ONEBIT_X(
                                                            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                                                            "attempt to terminate a thread-local "
                                                            "capture sequence from another "
                                                            "thread")};
#undef ONEBIT_X

const ErrorText* Find(CUresult error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace
}  // namespace onebit::testing::cuda

CUresult cuGetErrorName(CUresult error, const char** name) {
  const auto* const found = onebit::testing::cuda::Find(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const auto* const found = onebit::testing::cuda::Find(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
