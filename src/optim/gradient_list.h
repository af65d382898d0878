// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The gradients of a step: in one buffer, or handed over segment by segment.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/types.h"
#include "optim/arithmetic.h"
#include "optim/segment_table.h"

namespace onebit::optim {

// The gradient of a segment.
struct Gradient {
  void* data = nullptr;
  kernels::DataType type = kernels::DataType::kF32;
};

// The addresses of the gradients of all segments.
struct Gradients {
  std::span<const Gradient> by_segment;
  void* buffer = nullptr;  // contains all of them in order; null if each has memory of its own

  kernels::DataType buffer_type() const {
    return by_segment.empty() ? kernels::DataType::kF32 : by_segment[0].type;
  }
  // The buffer if its elements are fp32, otherwise null.
  float* floats() const {
    return buffer_type() == kernels::DataType::kF32 ? static_cast<float*>(buffer) : nullptr;
  }
};

// The gradients of the next step. Only FillZeros, for gradients that were null for the first time,
// allocates.
class GradientList {
 public:
  // `table` must outlive the list.
  explicit GradientList(const SegmentTable& table)
      : table_(table), by_segment_(table.segments().size()), entries_(table.segments().size()) {}

  // Records one gradient; null `data` stands for zeros. kInvalidUsage if the segment has one.
  Status Add(size_t segment, void* data, kernels::DataType type);
  // Records all gradients at once. kInvalidUsage if some were added.
  Status SetBuffer(void* buffer, kernels::DataType type);
  // kInvalidUsage if the gradient of a segment that is not empty is missing.
  Status CheckComplete() const;
  void Forget();

  // Gives zeros to segments whose gradient is null. For host work between Begin and End of
  // `arithmetic`, before gradients() is used.
  Status FillZeros(Arithmetic* arithmetic);
  Gradients gradients() const { return {by_segment_, buffer_}; }

  size_t bytes() const;

 private:
  struct Entry {
    bool is_given = false;
    Memory zeros;  // empty until the gradient is null for the first time
  };

  const SegmentTable& table_;
  std::vector<Gradient> by_segment_;
  std::vector<Entry> entries_;
  size_t given_count_ = 0;
  void* buffer_ = nullptr;
};

}  // namespace onebit::optim
