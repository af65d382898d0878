// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/placement.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <fstream>

namespace onebit {
namespace {

// Identifies the running kernel. Host names and network namespaces do not show who shares
// processors.
constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";

ProcessorSet AllowedProcessors() {
  // A machine may have more processors than fit into cpu_set_t; the kernel then returns EINVAL.
  for (size_t words = CPU_SETSIZE / 64; words <= 1024; words *= 2) {
    ProcessorSet set(words);
    auto* mask = reinterpret_cast<cpu_set_t*>(set.data());
    if (sched_getaffinity(0, words * sizeof(uint64_t), mask) != 0) continue;
    while (!set.empty() && set.back() == 0) set.pop_back();
    return set;
  }
  return {};
}

bool Intersect(const ProcessorSet& a, const ProcessorSet& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}

}  // namespace

uint32_t Placement::processor_count() const {
  uint32_t count = 0;
  for (const uint64_t word : processors) count += static_cast<uint32_t>(std::popcount(word));
  return count;
}

Placement PlacementOfThisThread() {
  Placement placement;
  std::ifstream(kBootId) >> placement.machine;
  placement.processors = AllowedProcessors();
  return placement;
}

size_t RanksSharing(const Placement& mine, std::span<const Placement> all) {
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Placement& other) {
    return other.machine == mine.machine && Intersect(other.processors, mine.processors);
  }));
}

}  // namespace onebit
