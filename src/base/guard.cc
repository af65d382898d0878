// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps the last error text of each thread.
#include "base/guard.h"

#include <string>

namespace onebit {
namespace {

thread_local std::string last_error;  // NOLINT: the C API promises it per thread

}  // namespace

Code RememberError(const Status& status) {
  if (!status.ok()) last_error = status.text();
  return status.code();
}

const char* LastErrorText() { return last_error.c_str(); }

}  // namespace onebit
