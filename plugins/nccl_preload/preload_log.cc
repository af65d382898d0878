// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/preload_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace onebit::preload {
namespace {

constexpr const char* kNames[] = {"NONE", "VERSION", "WARN", "INFO"};

LogLevel Threshold() {
  const char* const set = std::getenv("ONEBIT_DEBUG");
  const std::string_view level = set == nullptr ? "" : set;
  if (level == "NONE") return LogLevel::kNone;
  if (level == "VERSION") return LogLevel::kVersion;
  return level == "INFO" || level == "TRACE" ? LogLevel::kInfo : LogLevel::kWarn;
}

}  // namespace

void Log(LogLevel level, const char* format, ...) {
  if (level > Threshold()) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  std::fprintf(stderr, "%s:%d:%ld onebit %s %s\n", host, static_cast<int>(getpid()),
               static_cast<long>(syscall(SYS_gettid)), kNames[static_cast<size_t>(level)], text);
}

}  // namespace onebit::preload
