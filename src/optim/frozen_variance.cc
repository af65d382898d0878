// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/frozen_variance.h"

#include <cmath>

#include "kernels/optimizer.h"
#include "kernels/types.h"
#include "optim/api_status.h"

namespace onebit::optim {
namespace {

using kernels::DataType;

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

// Clears in `mask` what is clear in `other` and returns how many of `count` bits are left.
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
double RmsOfRoot(const float* v, size_t count, double v_correction) {
  if (count == 0) return 0;
  const double sum = kernels::cpu::SumOfMagnitudes(v, DataType::kF32, count);
  return std::sqrt(v_correction * sum / static_cast<double>(count));
}

}  // namespace

FrozenVariance::FrozenVariance(const SegmentTable& table)
    : table_(table), masks_(table.mask_bytes()), floors_(table.segments().size()) {}

Status FrozenVariance::Freeze(const float* v, double v_correction, double floor_share,
                              onebitCompressor_t compressor) {
  size_t set_count = 0;
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.is_dense) continue;

    const float* segment_v = v + segment.offset;
    uint8_t* mask = masks_.data() + segment.mask_offset;
    size_t segment_set_count = kernels::cpu::MaskOfNonzero(segment_v, segment.count, mask);
    if (const uint8_t* user_mask = table_.user_mask(segment); user_mask != nullptr) {
      segment_set_count = Intersect(user_mask, segment.count, mask);
    }
    set_count += segment_set_count;
    floors_[i] =
        static_cast<float>(floor_share * RmsOfRoot(segment_v, segment.count, v_correction));
  }

  const bool has_masked_element = set_count != table_.compressed_count();
  std::vector<uint8_t> packed_mask;
  if (has_masked_element) packed_mask = PackedMask();
  ONEBIT_TRY(FromApi(
      onebitCompressorSetMask(compressor, has_masked_element ? packed_mask.data() : nullptr)));
  has_masked_element_ = has_masked_element;
  is_ready_ = true;
  return OkStatus();
}

std::vector<uint8_t> FrozenVariance::PackedMask() const {
  std::vector<uint8_t> packed(kernels::BitBytes(table_.compressed_count()));
  for (const Segment& segment : table_.segments()) {
    if (segment.is_dense) continue;
    AppendBits(masks_.data() + segment.mask_offset, segment.count, segment.packed_offset,
               packed.data());
  }
  return packed;
}

}  // namespace onebit::optim
