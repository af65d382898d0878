// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// State derived from a variance that no longer changes: masks and denominator floors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/types.h"
#include "onebit/optim.h"
#include "optim/arithmetic.h"
#include "optim/segment_table.h"

namespace onebit::optim {

// An element with v = 0 never saw a gradient. One bit cannot say 0, so after the freeze such
// elements would receive the scale of their block divided by eps; they are masked. Elements with a
// tiny v are nearly as bad; the floor of a segment, a share of the root mean square of sqrt(v) over
// the segment, protects them. Where rows are rare, v says nothing about the size of a row's next
// gradient, and the share is 1. Where scales belong to segments, a long one has floors of its own
// for every kFloorBlock elements: the larger of the segment's and that block's, because an element
// gets the scale of its block.
//
// Dense segments keep a live v: they have only the caller's mask, and a floor only where their v
// does not see the gradients of local steps.
class FrozenVariance {
 public:
  static constexpr size_t kFloorBlock = kernels::kTensorSumBlock;

  // Both must outlive this object.
  FrozenVariance(const SegmentTable& table, Arithmetic& arithmetic)
      : table_(table), arithmetic_(arithmetic), floors_(table.segments().size()) {}
  Status Allocate(bool has_block_floors);

  // Derives everything from v and gives `compressor` its mask. `v_correction` multiplies v, as in
  // the denominator. May be called again, after an error or for another v.
  Status Freeze(const float* v, double v_correction, double floor_share,
                onebitCompressor_t compressor);

  // Derives the floors of dense segments from v.
  Status FloorDenseSegments(const float* v, double floor_share);

  bool is_ready() const { return is_ready_; }
  // Called when v was replaced: Freeze must be called again.
  void Forget() { is_ready_ = false; }

  // The floor of a segment, by its index in the table.
  float floor(size_t segment_index) const { return floors_[segment_index]; }
  // The floors of its blocks, in memory that kernels can read; null if the segment has one floor.
  const float* block_floors(size_t segment_index) const {
    const bool has_blocks = first_block_[segment_index] != first_block_[segment_index + 1];
    return has_blocks ? block_floors_in_memory() + first_block_[segment_index] : nullptr;
  }
  // Null when every element of every compressed segment takes part.
  const uint8_t* mask(const Segment& segment) const {
    return has_masked_element_ ? masks() + segment.mask_offset : nullptr;
  }

  size_t bytes() const {
    return masks_.size() + floors_.size() * sizeof(float) + block_floors_.size();
  }

 private:
  // Sums over one segment, written as results of the arithmetic.
  struct Sums {
    double v = 0;
    unsigned long long live_count = 0;  // elements whose v is not zero
  };

  uint8_t* masks() const { return reinterpret_cast<uint8_t*>(masks_.data()); }
  Sums* sums() const { return reinterpret_cast<Sums*>(sums_.data()); }
  float* block_floors_in_memory() const { return reinterpret_cast<float*>(block_floors_.data()); }
  double* block_sums() const { return reinterpret_cast<double*>(block_sums_.data()); }
  Status FloorBlocks(const float* v, double v_correction, double floor_share);
  // Combines the masks of compressed segments with those of the caller, on the host.
  Result<uint8_t*> JoinMasks(std::vector<uint8_t>* copy, size_t* set_count);
  // The masks of all compressed segments, concatenated without gaps as their elements are.
  std::vector<uint8_t> PackedMask(const uint8_t* masks) const;

  const SegmentTable& table_;
  Arithmetic& arithmetic_;
  Memory masks_;               // table_.mask_bytes()
  Memory sums_;                // one per segment
  std::vector<float> floors_;  // one per segment
  // The blocks of long compressed segments: each segment's first block among all, and their number
  // as the last entry; the sums of v of blocks; their floors.
  std::vector<size_t> first_block_;
  Memory block_sums_;
  Memory block_floors_;
  bool has_masked_element_ = false;
  bool is_ready_ = false;
};

}  // namespace onebit::optim
