// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Common parts of the collectives with one chunk per rank. `count` is that of a chunk; the size of
// a row is that of all chunks, as in nccl-tests.
#pragma once

#include <algorithm>

#include "perf/common/bandwidth.h"
#include "perf/common/chunks_wire.h"
#include "perf/common/collective.h"

namespace onebit::perf {

class ChunksCollective : public Collective {
 public:
  size_t dense_exchanges() const override { return 1; }

  // Chunks begin at multiples of 16 bytes, as in nccl-tests.
  size_t CountOf(size_t bytes, onebitDataType_t type, int ranks) const override {
    constexpr size_t kAlignment = 16;
    const size_t chunk = bytes / static_cast<size_t>(ranks) / kAlignment * kAlignment;
    return chunk / ElementBytes(type);
  }

  double BusFactor(int ranks) const override { return ChunksFactor(ranks); }

  uint64_t WireBound(const Case& row, const Options& options,
                     const WireFacts& facts) const override {
    const ChunksWire wire = {.count = row.count,
                             .ranks = static_cast<size_t>(row.ranks),
                             .packet = options.packet(),
                             .segments = facts.segments};
    return options.is_compressed() ? CompressedChunksBytes(wire)
                                   : DenseChunksBytes(wire, ElementBytes(row.type));
  }

 protected:
  // Adds the error of element `i` of an output.
  static void AddError(const Case& row, const void* output, size_t i, double exact,
                       ErrorNorm* norm) {
    const double error = ElementAt(output, row.type, i) - exact;
    norm->error += error * error;
    norm->exact += exact * exact;
  }
};

}  // namespace onebit::perf
