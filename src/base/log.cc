// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where log lines go, and what they look like.
#include "base/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "base/settings.h"

namespace onebit {
namespace {

// The process has one log, as it has one stderr.
struct Destination {
  std::mutex mutex;  // guards everything below, and keeps lines whole
  LogSink sink = nullptr;
  void* argument = nullptr;
  FILE* file = nullptr;
  bool is_opened = false;
};

Destination& TheDestination() {
  static Destination* destination = new Destination;  // never destroyed: logged to during exit
  return *destination;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// %h becomes the host name, %p the process id, %% a percent sign.
std::string ExpandPath(const std::string& pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'h':
        path += HostName();
        break;
      case 'p':
        path += std::to_string(getpid());
        break;
      default:
        path += pattern[i];
    }
  }
  return path;
}

FILE* OpenFile(const std::string& pattern) {
  if (pattern.empty()) return stderr;
  FILE* file = std::fopen(ExpandPath(pattern).c_str(), "a");
  return file != nullptr ? file : stderr;
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

// A broken environment must not silence the log: its own report comes through here.
const Settings& SettingsOrDefault() {
  static const Settings defaults;
  auto settings = GetSettings();
  return settings.ok() ? *settings.value() : defaults;
}

}  // namespace

bool LogEnabled(LogLevel level) { return level <= SettingsOrDefault().debug; }

void LogLine(LogLevel level, std::string_view text) {
  if (!LogEnabled(level)) return;
  const std::string line(text);
  Destination& destination = TheDestination();
  std::lock_guard lock(destination.mutex);
  if (destination.sink != nullptr) {
    destination.sink(level, line.c_str(), destination.argument);
    return;
  }
  if (!destination.is_opened) {
    destination.file = OpenFile(SettingsOrDefault().debug_file);
    destination.is_opened = true;
  }
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
