// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that a collective with one chunk per rank must send, by formula, independent of the
// library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit::perf {

struct ChunksWire {
  size_t count = 0;  // elements of a chunk
  size_t ranks = 1;
  size_t block = 4096;  // elements per scale; 0: one per message
  size_t segments = 1;
};

// Returns the bytes that every rank sends, headers included. A compressed call ends with a header
// from everyone to everyone.
uint64_t CompressedChunksBytes(const ChunksWire& wire);
uint64_t DenseChunksBytes(const ChunksWire& wire, size_t element_bytes);

}  // namespace onebit::perf
