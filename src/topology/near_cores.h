// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which cores are near the calling thread, and how many of them may compute for it.
#pragma once

#include <cstdint>

#include "topology/placement.h"

namespace onebit {

struct NearCores {
  uint32_t count = 0;       // cores, not hardware threads
  ProcessorSet processors;  // theirs, as far as the thread may run on them
};

// Cores of the NUMA node that the calling thread runs on, as far as it may use them. Without hwloc:
// one per processor it may run on.
NearCores CoresNearThisThread();

// Threads that can help a rank which shares `cores` evenly with `sharing` ranks, itself included,
// and needs one of them for itself. Few: codec kernels are limited by memory, which three or four
// cores can fill.
uint32_t ThreadsToSpare(uint32_t cores, size_t sharing);

}  // namespace onebit
