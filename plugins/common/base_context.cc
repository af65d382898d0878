// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/base_context.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace onebit::plugin {
namespace {

constexpr uint64_t kSpinNs = 20'000;

uint32_t CountCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    return static_cast<uint32_t>(CPU_COUNT(&cores));
  }
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more cores than cpu_set_t can hold
  return online > 0 ? static_cast<uint32_t>(online) : 1;
}

}  // namespace

BaseContext::BaseContext(const onebitTransportHost& host, const char* name)
    : host_(host), name_(name), cores_(CountCores()) {}

uint64_t BaseContext::spin_ns(uint32_t ranks_here) const {
  const uint32_t endpoints = open_endpoints_.load(std::memory_order_relaxed);
  return std::max(endpoints, ranks_here) > cores_ ? 0 : kSpinNs;
}

void BaseContext::Warn(const char* format, ...) const {
  char text[512];
  const int used = std::snprintf(text, sizeof text, "%s: ", name_);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + used, sizeof text - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  host_.log(onebitLogWarn, text);
}

}  // namespace onebit::plugin
