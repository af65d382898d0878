// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Errors are values: Status is ok or a code with a text, Result<T> a value or a Status.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/format.h"

namespace onebit {

// The library's error codes. Their values are those of onebitResult_t, as src/api asserts.
enum class Code : int {
  kOk = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
  kMismatch = 100,
  kCorrupt = 101,
  kPeerLost = 102,
  kNotAuthenticated = 103,
  kDetached = 104,
  kAborted = 105,
  kOutOfMemory = 106,
};

// An ok Status is cheap: its text is empty and allocates nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }

 private:
  Code code_ = Code::kOk;
  std::string text_;
};

inline Status OkStatus() { return {}; }

template <typename... Args>
Status Error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, Format(format, std::forward<Args>(args)...)};
}

// A value, or the error that prevented it.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: a value is a Result
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: so is an error

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace onebit

// Returns from the caller if `expression` is an error.
#define ONEBIT_TRY(expression)                                                        \
  do {                                                                                \
    if (::onebit::Status onebit_try_status = (expression); !onebit_try_status.ok()) { \
      return onebit_try_status;                                                       \
    }                                                                                 \
  } while (false)

#define ONEBIT_CONCAT_INNER(a, b) a##b
#define ONEBIT_CONCAT(a, b) ONEBIT_CONCAT_INNER(a, b)

// Defines or assigns `target` from a Result, or returns its error from the caller.
#define ONEBIT_ASSIGN_OR_RETURN(target, expression) \
  ONEBIT_ASSIGN_OR_RETURN_INNER(ONEBIT_CONCAT(onebit_result_, __LINE__), target, expression)
#define ONEBIT_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  target = std::move(result).value()
