// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counters of communicators and compressors, and the lines about the former that perf/lab compares
// with its links.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "onebit/onebit.h"

namespace onebit::perf {

// Counters of `comm` since its creation. Throws ToolError.
onebitCommStats_t StatsOf(onebitComm_t comm);

// Returns the counters of a compressor. Throws ToolError.
onebitCompressorStats_t StatsOf(onebitCompressor_t compressor);

// Everything a rank has handed to its transport so far. It is sent between processes as raw bytes.
struct SentTotal {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  uint64_t network_bytes = 0;  // of `bytes` those to ranks on other hosts
  uint64_t native_calls = 0;   // whose bytes and messages nobody counts
  uint64_t two_level_calls = 0;
};

// Reads the counters. Gathering them from all ranks sends a little more. Throws ToolError.
SentTotal SentBy(onebitComm_t comm);

// One line for each rank, "#   rank 0 sent 123 bytes in 4 messages". Where there are several hosts,
// ", 56 bytes of them to other hosts" follows.
std::string SentText(std::span<const SentTotal> ranks);

}  // namespace onebit::perf
