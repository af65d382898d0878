// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that a collective with one chunk per rank must send, by formula, independent of the
// library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "perf/common/packet_bytes.h"

namespace onebit::perf {

struct ChunksWire {
  size_t count = 0;  // elements of a chunk
  size_t ranks = 1;
  PacketRule packet;
  size_t segments = 1;
};

// Returns the bytes that every rank sends, headers included.
uint64_t CompressedChunksBytes(const ChunksWire& wire);
uint64_t DenseChunksBytes(const ChunksWire& wire, size_t element_bytes);

}  // namespace onebit::perf
