// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The destination of log lines, and their form.
#include "base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <system_error>

#include "base/path_pattern.h"
#include "base/without_file_size_signal.h"

namespace onebit {
namespace {

// The process has one log, as it has one stderr.
struct Destination {
  std::atomic<LogLevel> level = LogLevel::kWarn;
  std::mutex mutex;  // guards all members and keeps lines whole
  LogSink sink = nullptr;
  void* argument = nullptr;
  FILE* file = stderr;
};

Destination& TheDestination() {
  static Destination* destination = new Destination;  // never destroyed: others log during exit
  return *destination;
}

const char* NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kNone:
      return "NONE";
    case LogLevel::kVersion:
      return "VERSION";
    case LogLevel::kWarn:
      return "WARN";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kTrace:
      return "TRACE";
  }
  return "?";
}

}  // namespace

Status ConfigureLog(LogLevel level, const std::string& file_pattern) {
  FILE* file = stderr;
  if (!file_pattern.empty()) {
    const std::string path = ExpandPath(file_pattern);
    file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) {
      const int error = errno;
      return Error(Code::kInvalidUsage,
                   "environment variable ONEBIT_DEBUG_FILE: cannot open the log file \"{}\": {}",
                   path, std::generic_category().message(error));
    }
  }
  Destination& destination = TheDestination();
  std::lock_guard lock(destination.mutex);
  destination.file = file;
  destination.level.store(level, std::memory_order_relaxed);
  return OkStatus();
}

bool LogEnabled(LogLevel level) {
  return level <= TheDestination().level.load(std::memory_order_relaxed);
}

void LogLine(LogLevel level, std::string_view text) {
  if (!LogEnabled(level)) return;
  const std::string line(text);
  Destination& destination = TheDestination();
  std::lock_guard lock(destination.mutex);
  if (destination.sink != nullptr) {
    destination.sink(level, line.c_str(), destination.argument);
    return;
  }
  const WithoutFileSizeSignal no_signal;
  std::fprintf(destination.file, "%s:%d:%ld onebit %s %s\n", HostName().c_str(), getpid(),
               syscall(SYS_gettid), NameOf(level), line.c_str());
  std::fflush(destination.file);
}

void SetLogSink(LogSink sink, void* argument) {
  Destination& destination = TheDestination();
  std::lock_guard lock(destination.mutex);
  destination.sink = sink;
  destination.argument = argument;
}

}  // namespace onebit
