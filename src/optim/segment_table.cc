// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/segment_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/types.h"
#include "optim/gradient_elements.h"

namespace onebit::optim {
namespace {

constexpr uint32_t kKnownFlags =
    onebitSegmentDense | onebitSegmentNoTrustRatio | onebitSegmentRareRows;

// The sizes that the structure has had: it ended before `parameters` at first.
constexpr std::array<size_t, 2> kSegmentSizes = {offsetof(onebitSegment_t, parameters),
                                                 sizeof(onebitSegment_t)};

// The segments of a table have the size that the caller was compiled with; members that it did not
// know get their initial values.
onebitSegment_t SegmentAt(const onebitSegment_t* segments, size_t index) {
  const size_t size = segments[0].size;
  onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
  std::memcpy(&segment, reinterpret_cast<const std::byte*>(segments) + index * size, size);
  return segment;
}

Status CheckSize(size_t index, size_t size, size_t first_size) {
  if (std::ranges::find(kSegmentSizes, size) == kSegmentSizes.end()) {
    return Error(Code::kInvalidArgument,
                 "segments[{}].size is {}, but this library (version {}) knows {}: start from "
                 "ONEBIT_SEGMENT_INIT",
                 index, size, ONEBIT_VERSION_CODE, sizeof(onebitSegment_t));
  }
  if (size == first_size) return OkStatus();
  return Error(Code::kInvalidArgument, "segments[{}].size is {}, but that of segments[0] is {}",
               index, size, first_size);
}

Status CheckAligned(const void* memory, size_t alignment, const std::string& member) {
  if (reinterpret_cast<uintptr_t>(memory) % alignment == 0) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is not aligned to its element type", member);
}

}  // namespace

Result<SegmentTable> SegmentTable::Create(const Source& source, const Options& options) {
  SegmentTable table;
  if (source.segments == nullptr) {
    if (source.segment_count != 0) {
      return Error(Code::kInvalidArgument, "segmentCount is {}, but segments is NULL",
                   source.segment_count);
    }
    onebitSegment_t all = ONEBIT_SEGMENT_INIT;
    all.count = source.element_count;
    ONEBIT_TRY(table.Add(all, 0, source, options));
    table.JoinRuns(source, options, true);
    return table;
  }

  bool is_in_one_buffer = true;
  for (size_t i = 0; i < source.segment_count; ++i) {
    if (i == 0) ONEBIT_TRY(CheckSize(0, source.segments[0].size, source.segments[0].size));
    const onebitSegment_t segment = SegmentAt(source.segments, i);
    ONEBIT_TRY(CheckSize(i, segment.size, source.segments[0].size));
    ONEBIT_TRY(table.Add(segment, i, source, options));
    is_in_one_buffer &= segment.parameters == nullptr && segment.parameterCopy == nullptr;
  }
  const size_t covered_count = table.compressed_count_ + table.dense_count_;
  if (covered_count != source.element_count) {
    return Error(Code::kInvalidArgument, "segments cover {} elements, but there are {}",
                 covered_count, source.element_count);
  }
  for (size_t i = 0; i < source.segment_count; ++i) {
    table.CopyMask(SegmentAt(source.segments, i).mask, table.segments_[i]);
  }
  table.JoinRuns(source, options, is_in_one_buffer);
  return table;
}

Status SegmentTable::Add(const onebitSegment_t& segment, size_t index, const Source& source,
                         const Options& options) {
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
                                                       options.weight_decay));
  ONEBIT_TRY(Locate(segment, prefix, source, options, &added));
  added.is_dense = (segment.flags & onebitSegmentDense) != 0;
  added.has_trust_ratio = (segment.flags & onebitSegmentNoTrustRatio) == 0;
  added.has_rare_rows = (segment.flags & onebitSegmentRareRows) != 0;
  size_t& packed_count = added.is_dense ? dense_count_ : compressed_count_;
  added.packed_offset = packed_count;
  added.mask_offset = mask_bytes_;
  packed_count += added.count;
  mask_bytes_ += kernels::BitBytes(added.count);
  segments_.push_back(added);
  return OkStatus();
}

std::vector<size_t> SegmentTable::CompressedCuts() const {
  std::vector<size_t> cuts;
  for (const Segment& segment : segments_) {
    if (!segment.is_dense && segment.count != 0 && segment.packed_offset != 0) {
      cuts.push_back(segment.packed_offset);
    }
  }
  return cuts;
}

Status SegmentTable::SetRates(size_t index, double lr_scale, double weight_decay) {
  Segment& segment = segments_[index];
  ONEBIT_ASSIGN_OR_RETURN(lr_scale, ReadReal("lr_scale", lr_scale, segment.lr_scale));
  ONEBIT_ASSIGN_OR_RETURN(weight_decay,
                          ReadReal("weight_decay", weight_decay, segment.weight_decay));
  segment.lr_scale = lr_scale;
  segment.weight_decay = weight_decay;
  return OkStatus();
}

// Finds the parameters of a segment and their copy, either of which may be its own.
Status SegmentTable::Locate(const onebitSegment_t& segment, const std::string& prefix,
                            const Source& source, const Options& options, Segment* added) {
  const kernels::DataType copy_type = options.parameter_copy_type;
  ONEBIT_TRY(CheckAligned(segment.parameters, sizeof(float), prefix + "parameters"));
  ONEBIT_TRY(CheckAligned(segment.parameterCopy, kernels::BytesOf(kernels::DataType::kF16),
                          prefix + "parameterCopy"));
  if (segment.parameterCopy != nullptr && copy_type == kernels::DataType::kF32) {
    return Error(Code::kInvalidArgument,
                 "{}parameterCopy needs a parameterCopyType, onebitFloat16 or onebitBfloat16",
                 prefix);
  }
  added->x = segment.parameters;
  added->copy = segment.parameterCopy;
  if (added->copy == nullptr && options.parameter_copy != nullptr) {
    added->copy = ElementAt(options.parameter_copy, copy_type, segment.offset);
  }
  if (added->x != nullptr || segment.count == 0) return OkStatus();
  if (source.parameters == nullptr) {
    return Error(Code::kInvalidArgument,
                 "both parameters and {}parameters are NULL: a segment has its own, or is part of "
                 "one buffer",
                 prefix);
  }
  added->x = source.parameters + segment.offset;
  return OkStatus();
}

void SegmentTable::CopyMask(const uint8_t* mask, const Segment& segment) {
  if (mask == nullptr || segment.count == 0) return;
  if (user_masks_.empty()) user_masks_.assign(mask_bytes_, 0xff);
  std::memcpy(user_masks_.data() + segment.mask_offset, mask, kernels::BitBytes(segment.count));
}

void SegmentTable::JoinRuns(const Source& source, const Options& options, bool is_in_one_buffer) {
  if (is_in_one_buffer) {
    runs_.push_back(
        {.count = source.element_count, .x = source.parameters, .copy = options.parameter_copy});
    return;
  }
  for (const Segment& segment : segments_) {
    if (segment.count == 0) continue;
    runs_.push_back({segment.offset, segment.count, segment.x, segment.copy});
  }
}

}  // namespace onebit::optim
