// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/frozen_variance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/types.h"
#include "optim/api_status.h"

namespace onebit::optim {
namespace {

// Appends `count` bits of `mask` at bit `first_bit` of `packed`, which is zero from there on.
void AppendBits(const uint8_t* mask, size_t count, size_t first_bit, uint8_t* packed) {
  const size_t shift = first_bit % 8;
  uint8_t* out = packed + first_bit / 8;
  for (size_t begin = 0; begin < count; begin += 8, ++out) {
    const size_t bit_count = count - begin < 8 ? count - begin : 8;
    const unsigned bits = mask[begin / 8] & ((1u << bit_count) - 1);
    out[0] |= static_cast<uint8_t>(bits << shift);
    if (shift + bit_count > 8) out[1] |= static_cast<uint8_t>(bits >> (8 - shift));
  }
}

// Clears the bits of `mask` that are clear in `other` and returns how many of `count` bits are
// still set.
size_t Intersect(const uint8_t* other, size_t count, uint8_t* mask) {
  size_t set_count = 0;
  for (size_t i = 0; i < count; ++i) {
    const unsigned bit = 1u << (i % 8);
    if ((other[i / 8] & bit) == 0) mask[i / 8] &= static_cast<uint8_t>(~bit);
    set_count += (mask[i / 8] & bit) != 0 ? 1 : 0;
  }
  return set_count;
}

// Root mean square of sqrt(v * v_correction), which is the root of the mean of v * v_correction.
double RmsOfRoot(double sum_of_v, size_t count, double v_correction) {
  if (count == 0) return 0;
  return std::sqrt(v_correction * sum_of_v / static_cast<double>(count));
}

// The floor as a share of that root mean square.
double ShareOf(const Segment& segment, double floor_share) {
  return segment.has_rare_rows ? std::max(1.0, floor_share) : floor_share;
}

float FloorOf(const Segment& segment, double sum_of_v, double v_correction, double floor_share) {
  return static_cast<float>(ShareOf(segment, floor_share) *
                            RmsOfRoot(sum_of_v, segment.count, v_correction));
}

// Calls take(begin, count) for each block of a segment.
template <typename Take>
void ForEachBlock(const Segment& segment, const Take& take) {
  for (size_t begin = 0; begin < segment.count; begin += FrozenVariance::kFloorBlock) {
    take(begin, std::min(FrozenVariance::kFloorBlock, segment.count - begin));
  }
}

}  // namespace

Status FrozenVariance::Allocate(bool has_block_floors) {
  first_block_.assign(1, 0);
  for (const Segment& segment : table_.segments()) {
    const bool has_blocks = has_block_floors && !segment.is_dense && segment.count > kFloorBlock;
    first_block_.push_back(first_block_.back() +
                           (has_blocks ? kernels::BlockCount(segment.count, kFloorBlock) : 0));
  }
  const size_t blocks = first_block_.back();
  ONEBIT_ASSIGN_OR_RETURN(block_floors_,
                          arithmetic_.Allocate(blocks * sizeof(float), "floors of blocks"));
  ONEBIT_ASSIGN_OR_RETURN(block_sums_, arithmetic_.AllocateResults(blocks * sizeof(double)));
  ONEBIT_ASSIGN_OR_RETURN(masks_, arithmetic_.Allocate(table_.mask_bytes(), "masks"));
  ONEBIT_ASSIGN_OR_RETURN(sums_,
                          arithmetic_.AllocateResults(table_.segments().size() * sizeof(Sums)));
  return OkStatus();
}

Status FrozenVariance::Freeze(const float* v, double v_correction, double floor_share,
                              onebitCompressor_t compressor) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;
    const float* segment_v = v + segment.offset;
    arithmetic_.Run<Kernel::kMaskOfNonzero>({.v = segment_v,
                                             .count = segment.count,
                                             .mask = masks() + segment.mask_offset,
                                             .set_bits = &sums()[i].live_count});
    arithmetic_.Run<Kernel::kSumOfMagnitudes>(
        {.values = segment_v, .count = segment.count, .sum = &sums()[i].v});
  }
  ONEBIT_TRY(arithmetic_.Await(nullptr));
  size_t set_count = 0;
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;
    set_count += sums()[i].live_count;
    floors_[i] = FloorOf(segment, sums()[i].v, v_correction, floor_share);
  }
  ONEBIT_TRY(FloorBlocks(v, v_correction, floor_share));

  std::vector<uint8_t> packed_mask;
  if (set_count != table_.compressed_count() || !table_.user_masks().empty()) {
    std::vector<uint8_t> copy;
    ONEBIT_ASSIGN_OR_RETURN(const uint8_t* const joined, JoinMasks(&copy, &set_count));
    if (set_count != table_.compressed_count()) packed_mask = PackedMask(joined);
  }
  const bool has_masked_element = set_count != table_.compressed_count();
  ONEBIT_TRY(FromApi(
      onebitCompressorSetMask(compressor, has_masked_element ? packed_mask.data() : nullptr)));
  has_masked_element_ = has_masked_element;
  is_ready_ = true;
  return OkStatus();
}

Status FrozenVariance::FloorBlocks(const float* v, double v_correction, double floor_share) {
  if (first_block_.back() == 0) return OkStatus();
  const auto for_each = [&](const auto& take) {
    for (size_t i = 0; i < table_.segments().size(); ++i) {
      if (first_block_[i] == first_block_[i + 1]) continue;
      size_t block = first_block_[i];
      ForEachBlock(table_.segments()[i],
                   [&](size_t begin, size_t count) { take(i, begin, count, block++); });
    }
  };
  for_each([&](size_t i, size_t begin, size_t count, size_t block) {
    arithmetic_.Run<Kernel::kSumOfMagnitudes>({.values = v + table_.segments()[i].offset + begin,
                                               .count = count,
                                               .sum = block_sums() + block});
  });
  ONEBIT_TRY(arithmetic_.Await(nullptr));
  std::vector<float> floors(first_block_.back());
  for_each([&](size_t i, size_t /*begin*/, size_t count, size_t block) {
    const double own = ShareOf(table_.segments()[i], floor_share) *
                       RmsOfRoot(block_sums()[block], count, v_correction);
    floors[block] = std::max(floors_[i], static_cast<float>(own));
  });
  arithmetic_.Copy(block_floors_.data(), floors.data(), block_floors_.size());
  return arithmetic_.Await(nullptr);
}

Status FrozenVariance::FloorDenseSegments(const float* v, double floor_share) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (!segment.is_dense) continue;
    arithmetic_.Run<Kernel::kSumOfMagnitudes>(
        {.values = v + segment.offset, .count = segment.count, .sum = &sums()[i].v});
  }
  ONEBIT_TRY(arithmetic_.Await(nullptr));
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (!segment.is_dense) continue;
    floors_[i] = FloorOf(segment, sums()[i].v, 1, floor_share);
    // A division by eps alone would throw the segment at its first gradient.
    if (sums()[i].v == 0 && ShareOf(segment, floor_share) > 0) {
      floors_[i] = std::numeric_limits<float>::infinity();
    }
  }
  return OkStatus();
}

// Runs on the host, where the caller's masks are: training does this once or a few times.
Result<uint8_t*> FrozenVariance::JoinMasks(std::vector<uint8_t>* copy, size_t* set_count) {
  uint8_t* joined = masks();
  if (arithmetic_.is_deferred()) {
    copy->resize(masks_.size());
    joined = copy->data();
    arithmetic_.Copy(joined, masks(), copy->size());
    ONEBIT_TRY(arithmetic_.Await(nullptr));
  }
  if (table_.user_masks().empty()) return joined;
  *set_count = 0;
  for (const Segment& segment : table_.segments()) {
    if (segment.is_dense) continue;
    *set_count += Intersect(table_.user_mask(segment), segment.count, joined + segment.mask_offset);
  }
  if (arithmetic_.is_deferred()) {
    arithmetic_.Copy(masks(), joined, copy->size());
    ONEBIT_TRY(arithmetic_.Await(nullptr));
  }
  return joined;
}

std::vector<uint8_t> FrozenVariance::PackedMask(const uint8_t* masks) const {
  std::vector<uint8_t> packed(kernels::BitBytes(table_.compressed_count()));
  for (const Segment& segment : table_.segments()) {
    if (segment.is_dense) continue;
    AppendBits(masks + segment.mask_offset, segment.count, segment.packed_offset, packed.data());
  }
  return packed;
}

}  // namespace onebit::optim
