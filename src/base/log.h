// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The log: one line a call, to stderr, a file or the application's callback.
#pragma once

#include <string>
#include <string_view>

#include "base/format.h"
#include "base/status.h"

namespace onebit {

enum class LogLevel : int { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 4 };

using LogSink = void (*)(LogLevel level, const char* text, void* argument);

// Sets the level and the file, once, when the settings are read; before that the log takes WARN to
// stderr. In `file_pattern` %h is the host, %p the process id, %% a percent sign; empty means
// stderr. After an error, which names the path and the cause, the log stays as it was.
Status ConfigureLog(LogLevel level, const std::string& file_pattern);

// True when lines of `level` are written; check before composing an expensive text.
bool LogEnabled(LogLevel level);

// Writes one line in NCCL's shape, "host:pid:tid onebit WARN text". Callable from any thread.
void LogLine(LogLevel level, std::string_view text);

// Sends lines to `sink` instead; null restores stderr or the file.
void SetLogSink(LogSink sink, void* argument);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogLine(level, Format(format, std::forward<Args>(args)...));
}

}  // namespace onebit
