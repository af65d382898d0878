// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes lines for people, in the form of NCCL's and the library's.
#pragma once

#include <cstdint>

namespace onebit::preload {

// Values of ONEBIT_DEBUG.
enum class LogLevel : uint8_t { kNone, kVersion, kWarn, kInfo };

// Writes "host:pid:tid onebit WARN text" to stderr if ONEBIT_DEBUG (WARN) asks for it.
__attribute__((format(printf, 2, 3))) void Log(LogLevel level, const char* format, ...);

}  // namespace onebit::preload
