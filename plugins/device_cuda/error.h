// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The text of a thread's last error, and the conversion of CUDA errors to results with a text.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "onebit/onebit.h"
#include "plugins/device_cuda/loaded_driver.h"

namespace onebit::device_cuda {

// "" if no function has failed on this thread. Valid until the next failure.
const char* LastError();

std::string FormatText(fmt::string_view format, fmt::format_args arguments);

template <typename... Arguments>
std::string Text(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  return FormatText(format, fmt::make_format_args(arguments...));
}

// Stores `text` as the thread's last error, truncated if very long. Returns `result`.
onebitResult_t SetError(onebitResult_t result, std::string_view text);

template <typename... Arguments>
onebitResult_t Fail(onebitResult_t result, fmt::format_string<Arguments...> format,
                    Arguments&&... arguments) {
  return SetError(result, FormatText(format, fmt::make_format_args(arguments...)));
}

// Records a failed driver call: "<what>: <CUDA's name and text>, device 1; <what to do>". Returns
// onebitOutOfMemory if CUDA reports that, else onebitUnhandledCudaError.
onebitResult_t SetCudaError(const Driver& driver, CUresult error, std::string_view what);

// `result` is a CUresult. Formats text only for an error.
template <typename... Arguments>
onebitResult_t Check(const Driver& driver, CUresult result, fmt::format_string<Arguments...> format,
                     Arguments&&... arguments) {
  if (result == CUDA_SUCCESS) [[likely]] {
    return onebitSuccess;
  }
  return SetCudaError(driver, result, FormatText(format, fmt::make_format_args(arguments...)));
}

// Returns an error from the caller; the text is that of the function that failed.
#define ONEBIT_CUDA_TRY(call)                                                                    \
  do {                                                                                           \
    if (const onebitResult_t onebit_cuda_result = (call); onebit_cuda_result != onebitSuccess) { \
      return onebit_cuda_result;                                                                 \
    }                                                                                            \
  } while (false)

}  // namespace onebit::device_cuda
