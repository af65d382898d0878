// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The layers of an optimizer: the runs of the flat buffer and their settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "onebit/optim.h"

namespace onebit::optim {

// A run of parameters. Its mask starts on a byte boundary, so that kernels can process a single
// run.
struct Segment {
  size_t offset = 0;
  size_t count = 0;
  double lr_scale = 1;
  double weight_decay = 0;
  bool is_dense = false;  // exact average, never frozen v
  bool has_trust_ratio = true;
  size_t packed_offset = 0;  // first element in the concatenation of all segments of its kind
  size_t mask_offset = 0;    // first byte in a mask buffer of mask_bytes()
};

// Immutable after creation; covers all elements in order without gaps.
class SegmentTable {
 public:
  // `weight_decay` applies to segments without their own.
  static Result<SegmentTable> Create(const onebitSegment_t* segments, size_t segment_count,
                                     size_t element_count, double weight_decay);

  const std::vector<Segment>& segments() const { return segments_; }
  size_t compressed_count() const { return compressed_count_; }  // elements
  size_t dense_count() const { return dense_count_; }
  size_t mask_bytes() const { return mask_bytes_; }

  // The caller's mask of one segment; null if all of its elements take part.
  const uint8_t* user_mask(const Segment& segment) const {
    return user_masks_.empty() ? nullptr : user_masks_.data() + segment.mask_offset;
  }
  // The masks of all segments; empty when no segment has one.
  std::span<const uint8_t> user_masks() const { return user_masks_; }

 private:
  Status Add(const onebitSegment_t& segment, size_t index, double default_weight_decay);
  void CopyMasks(const onebitSegment_t* segments, size_t segment_count);

  std::vector<Segment> segments_;
  std::vector<uint8_t> user_masks_;  // empty when no segment has one
  size_t compressed_count_ = 0;
  size_t dense_count_ = 0;
  size_t mask_bytes_ = 0;
};

}  // namespace onebit::optim
