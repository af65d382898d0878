// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Logs lines about steps that are already committed: failing to write a line is not an error of the
// step.
#pragma once

#include <new>
#include <utility>

#include "base/log.h"

namespace onebit::optim {

template <typename... Args>
void LogIfPossible(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    Log(level, format, std::forward<Args>(args)...);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace onebit::optim
