// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads /proc/self.
#include "perf/studies/soak/process_usage.h"

#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "perf/common/tool_error.h"

namespace onebit::soak {
namespace {

uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    uint64_t kilobytes = 0;
    if (name == "VmRSS:" && status >> kilobytes) return kilobytes * 1024;
    std::getline(status, name);
  }
  throw perf::ToolError("/proc/self/status has no VmRSS");
}

uint64_t OpenDescriptors() {
  uint64_t entries = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++entries;
  }
  if (error) throw perf::ToolError("cannot read /proc/self/fd: " + error.message());
  return entries - 1;  // without that of the folder itself
}

}  // namespace

ProcessUsage UsageNow() {
  malloc_trim(0);
  const struct mallinfo2 heap = mallinfo2();
  return {.resident_bytes = ResidentBytes(),
          .heap_bytes = heap.uordblks + heap.hblkhd,
          .descriptors = OpenDescriptors()};
}

}  // namespace onebit::soak
