// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The border of the C API: errors and exceptions become a code and this thread's last error text.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "base/status.h"

namespace onebit {

// Stores the text of an error for LastErrorText of this thread; returns the code.
Code RememberError(const Status& status);
const char* LastErrorText();

// Runs a body that returns a Status, and turns std::bad_alloc into one.
template <typename Body>
Status CatchNoMemory(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory, "out of memory"};  // short enough to need no allocation
  }
}

// Runs the body of an API function, which returns a Status. No exception leaves the library.
// `Result` is the C enumeration with the values of Code.
template <typename Result, typename Body>
Result GuardAs(Body&& body) noexcept {
  Code code;
  try {
    code = RememberError(std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    code = RememberError({Code::kOutOfMemory, "out of memory"});
  } catch (const std::exception& error) {
    code = RememberError({Code::kInternalError, error.what()});
  }
  return static_cast<Result>(code);
}

}  // namespace onebit
