// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Bandwidths as nccl-tests defines them. GB are 10^9 bytes. Bytes are logical, those of the
// uncompressed message, so figures of all modes compare directly.
#pragma once

#include <cstddef>

namespace onebit::perf {

struct Bandwidth {
  double alg_gbps = 0;  // message bytes per second
  double bus_gbps = 0;  // scaled to what a link must carry
};

// `bus_factor` depends on the collective and the number of ranks.
constexpr Bandwidth BandwidthOf(size_t bytes, double seconds, double bus_factor) {
  if (seconds <= 0) return {};
  const double alg = static_cast<double>(bytes) / seconds / 1e9;
  return {alg, alg * bus_factor};
}

// Bytes that each rank must send in a bandwidth-optimal dense allreduce, as a multiple of the
// message. It is also the bus factor.
constexpr double AllReduceFactor(int ranks) { return 2.0 * (ranks - 1) / ranks; }

// The same for reduce-scatter, all-gather and all-to-all, as a multiple of the larger buffer.
constexpr double ChunksFactor(int ranks) { return (ranks - 1.0) / ranks; }

}  // namespace onebit::perf
