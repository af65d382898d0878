// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Failures of a tool: wrong usage, and a library call that returned an error.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "onebit/onebit.h"

namespace onebit::perf {

// Exit statuses of every tool.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // wrong data, or an error of the library or the system
inline constexpr int kExitUsage = 2;   // the command line
// Additional statuses of programs that start others, with the values that shells use.
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// The command line is wrong; the text says what would be right.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something failed while running.
class ToolError : public std::runtime_error {
 public:
  // is_consequence: because another rank failed, which says so itself.
  explicit ToolError(const std::string& text, bool is_consequence = false)
      : std::runtime_error(text), is_consequence_(is_consequence) {}
  bool is_consequence() const { return is_consequence_; }

 private:
  bool is_consequence_;
};

// A program cannot be started; the status is what a shell would end with.
class StartError : public std::runtime_error {
 public:
  StartError(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// The text of the error of this thread's last system call.
inline std::string ErrnoText() { return std::generic_category().message(errno); }

// Throws the library's own text when `result` is an error. `call` names what was called. To be used
// on the thread that made the call: the text belongs to it.
inline void Check(onebitResult_t result, const char* call) {
  if (result == onebitSuccess) return;
  throw ToolError(fmt::format("{}: {} ({}): {}", call, onebitGetErrorString(result),
                              static_cast<int>(result), onebitGetLastError(nullptr)),
                  result == onebitRemoteError || result == onebitAborted);
}

}  // namespace onebit::perf
