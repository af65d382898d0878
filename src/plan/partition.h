// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Assigns elements to ranks: cuts tensors into chunks and chunks into segments. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/cuts.h"

namespace onebit {

struct ElementRange {
  size_t begin = 0;
  size_t count = 0;

  size_t end() const { return begin + count; }
};

// Cuts `element_count` elements into one chunk per rank, of equal padded length, and each chunk
// into segments of equal length (the last may be shorter). Rank j serves chunk j. Chunk lengths are
// multiples of the alignment, segment lengths of the block, so blocks never cross either boundary.
// With cuts, a segment begins at the last block that begins at or before that multiple.
class Partition {
 public:
  static constexpr size_t kMaxSegments = 64;

  // segment_elements is a target length; 0 makes a chunk one segment. Otherwise
  // block must not be 0. `cuts` must live as long as copies of this object.
  Partition(size_t element_count, size_t ranks, size_t alignment, size_t block,
            size_t segment_elements, const Cuts* cuts = nullptr)
      : element_count_(element_count), block_(block), cuts_(cuts) {
    const size_t unit = ranks * alignment;
    chunk_ = (element_count + unit - 1) / unit * alignment;
    CutSegments(block, segment_elements);
  }

  // Chunks of exactly `chunk_elements`, all complete. The call's count alone sets their boundaries,
  // aligned or not.
  static Partition OfChunks(size_t chunk_elements, size_t ranks, size_t block,
                            size_t segment_elements) {
    Partition partition(0, 1, 1, 1, 0);
    partition.element_count_ = chunk_elements * ranks;
    partition.chunk_ = chunk_elements;
    partition.CutSegments(block, segment_elements);
    return partition;
  }

  size_t chunk_elements() const { return chunk_; }
  size_t element_count() const { return element_count_; }
  size_t segments() const { return segments_; }

  // Elements of a chunk; padding belongs to no chunk.
  ElementRange Chunk(size_t chunk) const { return Clip(chunk * chunk_, chunk_); }

  ElementRange Segment(size_t chunk, size_t segment) const {
    const size_t offset = segment * segment_;
    const ElementRange even = Clip(chunk * chunk_ + offset, std::min(segment_, chunk_ - offset));
    if (cuts_ == nullptr) return even;
    const size_t begin = BlockAt(chunk, even.begin);
    const size_t end = segment + 1 == segments_ ? even.end() : BlockAt(chunk, even.end());
    return {begin, end - begin};
  }

 private:
  // The beginning of the block of a chunk that has `element`.
  size_t BlockAt(size_t chunk, size_t element) const {
    if (element == element_count_) return element;
    const size_t first = std::max(chunk * chunk_, cuts_->AtOrBefore(element));
    return first + (element - first) / block_ * block_;
  }

  void CutSegments(size_t block, size_t segment_elements) {
    segment_ = chunk_;
    if (segment_elements == 0 || chunk_ <= segment_elements) return;
    const size_t wished = (chunk_ + segment_elements - 1) / segment_elements;
    const size_t pieces = std::min(wished, kMaxSegments);
    segment_ = ((chunk_ + pieces - 1) / pieces + block - 1) / block * block;
    segments_ = (chunk_ + segment_ - 1) / segment_;
  }

  ElementRange Clip(size_t begin, size_t length) const {
    begin = std::min(begin, element_count_);
    return {begin, std::min(length, element_count_ - begin)};
  }

  size_t element_count_;
  size_t chunk_ = 0;
  size_t segment_ = 0;
  size_t segments_ = 1;
  size_t block_ = 1;  // used with cuts
  const Cuts* cuts_ = nullptr;
};

}  // namespace onebit
