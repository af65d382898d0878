// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Cores near the calling thread, and how many threads may compute for it.
#pragma once

#include <cstdint>

#include "topology/placement.h"

namespace onebit {

struct NearCores {
  uint32_t count = 0;       // cores, not hardware threads
  ProcessorSet processors;  // of these cores, those on which the thread may run
};

// Returns the cores of the calling thread's NUMA node that it may use. Without hwloc every
// processor that it may use counts as a core.
NearCores CoresNearThisThread();

// Returns how many threads can help a rank that shares `cores` evenly with `sharing` ranks, itself
// included, and needs one core for itself. At most 3, because codec kernels are limited by memory
// bandwidth, which three or four cores can saturate.
uint32_t ThreadsToSpare(uint32_t cores, size_t sharing);

}  // namespace onebit
