// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/segment_table.h"

#include <algorithm>
#include <cstring>

#include "kernels/types.h"
#include "optim/options.h"

namespace onebit::optim {
namespace {

constexpr uint32_t kKnownFlags = onebitSegmentDense | onebitSegmentNoTrustRatio;

}  // namespace

Result<SegmentTable> SegmentTable::Create(const onebitSegment_t* segments, size_t segment_count,
                                          size_t element_count, double weight_decay) {
  SegmentTable table;
  if (segments == nullptr) {
    if (segment_count != 0) {
      return Error(Code::kInvalidArgument, "segmentCount is {}, but segments is NULL",
                   segment_count);
    }
    onebitSegment_t all = ONEBIT_SEGMENT_INIT;
    all.count = element_count;
    ONEBIT_TRY(table.Add(all, 0, weight_decay));
    return table;
  }

  for (size_t i = 0; i < segment_count; ++i) {
    const onebitSegment_t& segment = segments[i];
    if (segment.size != sizeof(onebitSegment_t)) {
      return Error(Code::kInvalidArgument,
                   "segments[{}].size is {}, but this library (version {}) knows {}: start from "
                   "ONEBIT_SEGMENT_INIT",
                   i, segment.size, ONEBIT_VERSION_CODE, sizeof(onebitSegment_t));
    }
    ONEBIT_TRY(table.Add(segment, i, weight_decay));
  }
  const size_t covered_count = table.compressed_count_ + table.dense_count_;
  if (covered_count != element_count) {
    return Error(Code::kInvalidArgument, "segments cover {} elements, but there are {}",
                 covered_count, element_count);
  }
  table.CopyMasks(segments, segment_count);
  return table;
}

Status SegmentTable::Add(const onebitSegment_t& segment, size_t index,
                         double default_weight_decay) {
  const size_t end = compressed_count_ + dense_count_;
  if (segment.offset != end) {
    return Error(Code::kInvalidArgument,
                 "segments[{}].offset is {}, but must be {}, the end of the segment before it",
                 index, segment.offset, end);
  }
  if (segment.count > SIZE_MAX / sizeof(float) - end) {
    return Error(Code::kInvalidArgument, "segments[{}].count is {}, which cannot be addressed",
                 index, segment.count);
  }
  if ((segment.flags & ~kKnownFlags) != 0) {
    return Error(Code::kInvalidArgument, "segments[{}].flags has unknown bits {:#x}", index,
                 segment.flags & ~kKnownFlags);
  }

  Segment added{.offset = segment.offset, .count = segment.count};
  const std::string prefix = Format("segments[{}].", index);
  ONEBIT_ASSIGN_OR_RETURN(added.lr_scale, ReadReal(prefix + "lrScale", segment.lrScale, 1.0));
  ONEBIT_ASSIGN_OR_RETURN(added.weight_decay, ReadReal(prefix + "weightDecay", segment.weightDecay,
                                                       default_weight_decay));
  added.is_dense = (segment.flags & onebitSegmentDense) != 0;
  added.has_trust_ratio = (segment.flags & onebitSegmentNoTrustRatio) == 0;
  size_t& packed_count = added.is_dense ? dense_count_ : compressed_count_;
  added.packed_offset = packed_count;
  added.mask_offset = mask_bytes_;
  packed_count += added.count;
  mask_bytes_ += kernels::BitBytes(added.count);
  segments_.push_back(added);
  return OkStatus();
}

void SegmentTable::CopyMasks(const onebitSegment_t* segments, size_t segment_count) {
  for (size_t i = 0; i < segment_count; ++i) {
    const uint8_t* mask = segments[i].mask;
    if (mask == nullptr || segments_[i].count == 0) continue;
    if (user_masks_.empty()) user_masks_.assign(mask_bytes_, 0xff);
    std::memcpy(user_masks_.data() + segments_[i].mask_offset, mask,
                kernels::BitBytes(segments_[i].count));
  }
}

}  // namespace onebit::optim
