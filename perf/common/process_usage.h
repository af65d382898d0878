// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What this process holds, to find what it does not give back.
#pragma once

#include <cstdint>

namespace onebit::perf {

// It travels between processes as it is.
struct ProcessUsage {
  uint64_t resident_bytes = 0;  // after free memory was given back to the system
  uint64_t heap_bytes = 0;      // of these, what malloc has given out; the rest is between blocks
  uint64_t descriptors = 0;     // that are open
};

// Throws ToolError.
ProcessUsage UsageNow();

}  // namespace onebit::perf
