// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The layers of an optimizer: their settings, and where their parameters are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "onebit/optim.h"
#include "optim/options.h"

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
  bool has_rare_rows = false;
  size_t packed_offset = 0;  // first element in the concatenation of all segments of its kind
  size_t mask_offset = 0;    // first byte in a mask buffer of mask_bytes()
  float* x = nullptr;        // parameters
  void* copy = nullptr;      // their low-precision copy; null: there is none
};

// A choice of segments.
enum class Which { kAll, kDense, kCompressed };
inline bool Includes(Which which, const Segment& segment) {
  return which == Which::kAll || segment.is_dense == (which == Which::kDense);
}

// Parameters that are contiguous in memory, and their low-precision copy.
struct ParameterRun {
  size_t offset = 0;
  size_t count = 0;
  float* x = nullptr;
  void* copy = nullptr;
};

// Covers all elements in order without gaps. Only rates change after creation.
class SegmentTable {
 public:
  // The caller's description. Segments without parameters, a copy or a weight decay of their own
  // have those of `parameters` and `options`.
  struct Source {
    const onebitSegment_t* segments = nullptr;  // null: one segment
    size_t segment_count = 0;
    size_t element_count = 0;
    float* parameters = nullptr;
  };
  static Result<SegmentTable> Create(const Source& source, const Options& options);

  const std::vector<Segment>& segments() const { return segments_; }
  // Replaces lr_scale and weight_decay, but for those that are ONEBIT_UNDEF_REAL. The segment must
  // exist.
  Status SetRates(size_t index, double lr_scale, double weight_decay);
  // All elements in order: one run if the parameters are in one buffer, otherwise one per segment
  // that is not empty.
  const std::vector<ParameterRun>& runs() const { return runs_; }
  size_t count() const { return compressed_count_ + dense_count_; }  // elements
  size_t compressed_count() const { return compressed_count_; }
  // The first element of each compressed segment but the first, in their concatenation.
  std::vector<size_t> CompressedCuts() const;
  size_t dense_count() const { return dense_count_; }
  size_t mask_bytes() const { return mask_bytes_; }

  // The caller's mask of one segment; null if all of its elements take part.
  const uint8_t* user_mask(const Segment& segment) const {
    return user_masks_.empty() ? nullptr : user_masks_.data() + segment.mask_offset;
  }
  // The masks of all segments; empty when no segment has one.
  std::span<const uint8_t> user_masks() const { return user_masks_; }

 private:
  Status Add(const onebitSegment_t& segment, size_t index, const Source& source,
             const Options& options);
  static Status Locate(const onebitSegment_t& segment, const std::string& prefix,
                       const Source& source, const Options& options, Segment* added);
  void CopyMask(const uint8_t* mask, const Segment& segment);
  void JoinRuns(const Source& source, const Options& options, bool is_in_one_buffer);

  std::vector<Segment> segments_;
  std::vector<ParameterRun> runs_;
  std::vector<uint8_t> user_masks_;  // empty when no segment has one
  size_t compressed_count_ = 0;
  size_t dense_count_ = 0;
  size_t mask_bytes_ = 0;
};

}  // namespace onebit::optim
