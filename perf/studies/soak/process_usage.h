// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Memory and descriptors that this process holds, to find leaks.
#pragma once

#include <cstdint>

namespace onebit::soak {

// It is sent between processes as raw bytes.
struct ProcessUsage {
  uint64_t resident_bytes = 0;  // after free memory was given back to the system
  uint64_t heap_bytes = 0;      // of these, what malloc has given out; the rest is between blocks
  uint64_t descriptors = 0;     // open ones
};

// Throws ToolError.
ProcessUsage UsageNow();

}  // namespace onebit::soak
