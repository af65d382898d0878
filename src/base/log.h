// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The log writes one line per call to stderr, a file or the application's callback.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"
#include "base/status.h"

namespace onebit {

enum class LogLevel : int { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 4 };

using LogSink = void (*)(LogLevel level, const char* text, void* argument);

// Sets the level and the file, once, when the settings are read; until then the log writes WARN to
// stderr. In `file_pattern` %h is the host, %p the process id, %% a percent sign; empty means
// stderr. An error names the path and the cause and leaves the log as it was.
Status ConfigureLog(LogLevel level, const std::string& file_pattern);

// True if lines of `level` are written. Check it before composing an expensive text.
bool LogEnabled(LogLevel level);

// Writes one line in NCCL's form, "host:pid:tid onebit WARN text". Thread-safe.
void LogLine(LogLevel level, std::string_view text);

// Sends lines to `sink` instead; null restores stderr or the file.
void SetLogSink(LogSink sink, void* argument);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogLine(level, Format(format, std::forward<Args>(args)...));
}

}  // namespace onebit
