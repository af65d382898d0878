// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sizes of compressed packets, by the formulas of src/codec/FORMAT.md (sections 4, 15 and 18) and
// independent of the library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace onebit::perf {

inline constexpr uint64_t kHeaderBytes = 64;  // of every message

constexpr uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// How a codec lays out its packets. The defaults are those of signs.
struct PacketRule {
  size_t block = 4096;        // elements per scale; 0: one scale per packet
  size_t element_bits = 1;    // of the code of an element that is sent
  size_t scale_bytes = 4;     // of a block's scale, and of its minimum if it has one
  size_t code_alignment = 1;  // codes begin at a multiple of this many bytes
  bool has_verdicts = true;   // calls of parts end with a header to every rank
  size_t sent_of_block = 0;   // sparse codecs: elements of a block that are sent; 0: all
  size_t index_bits = 0;      // sparse codecs: of an index; indices are aligned as codes are

  constexpr uint64_t ScalesOf(uint64_t elements) const {
    if (elements == 0) return 0;
    return block == 0 ? 1 : CeilDivide(elements, block);
  }
  constexpr bool is_sparse() const { return sent_of_block != 0; }
  // How many of `elements` elements are sent.
  constexpr uint64_t SentOf(uint64_t elements) const {
    if (!is_sparse()) return elements;
    return elements / block * sent_of_block + CeilDivide(elements % block * sent_of_block, block);
  }
  // The packet of `elements` that have `scales` scales in all.
  constexpr uint64_t Bytes(uint64_t scales, uint64_t elements) const {
    const uint64_t sent = SentOf(elements);
    return Aligned(scales * scale_bytes) + Aligned(CeilDivide(sent * index_bits, 8)) +
           CeilDivide(sent * element_bits, 8);
  }
  constexpr uint64_t Bytes(uint64_t elements) const { return Bytes(ScalesOf(elements), elements); }

  // The packets of a chunk of `elements`, of which each segment has one, together. The longest
  // chunk has `longest` elements and travels in `segments` segments. Segments are whole blocks, but
  // the padding of each counts.
  constexpr uint64_t SegmentedBytes(uint64_t elements, uint64_t longest, uint64_t segments) const {
    if (segments <= 1 || block == 0) return Bytes(elements);
    const uint64_t length = SegmentLength(longest, segments);
    uint64_t bytes = 0;
    for (uint64_t begin = 0; begin < elements; begin += length) {
      bytes += Bytes(std::min(length, elements - begin));
    }
    return bytes;
  }

 private:
  constexpr uint64_t Aligned(uint64_t bytes) const {
    return CeilDivide(bytes, code_alignment) * code_alignment;
  }

  // FORMAT.md, section 2. Lengths are rounded up to whole blocks, so fewer segments than planned
  // may be enough; the plan is then the smallest that gives this number.
  constexpr uint64_t SegmentLength(uint64_t longest, uint64_t segments) const {
    constexpr uint64_t kMostPlanned = 64;
    for (uint64_t planned = segments; planned <= kMostPlanned; ++planned) {
      const uint64_t length = CeilDivide(CeilDivide(longest, planned), block) * block;
      if (CeilDivide(longest, length) == segments) return length;
    }
    return CeilDivide(CeilDivide(longest, segments), block) * block;
  }
};

}  // namespace onebit::perf
