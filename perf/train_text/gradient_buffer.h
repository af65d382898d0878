// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A gradient in the type that the optimizer receives.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "onebit/onebit.h"

namespace onebit::train {

/**
 * The model computes in fp32. With fp16 or bf16 gradients the result is multiplied by the loss
 * scale and rounded to nearest even, as mixed-precision training would do it.
 */
class GradientBuffer {
 public:
  GradientBuffer(size_t count, onebitDataType_t type, double loss_scale)
      : type_(type), loss_scale_(static_cast<float>(loss_scale)), values_(count) {
    if (type == onebitFloat16) half_.resize(count);
    if (type == onebitBfloat16) bfloat16_.resize(count);
  }

  /** The buffer the model writes to. */
  std::span<float> values() { return values_; }

  /** Returns `values` scaled and converted; valid until the values are written again. */
  void* Converted() { return Converted(0, values_.size()); }

  /** Converts `count` values from `begin` on. */
  void* Converted(size_t begin, size_t count) {
    using Eigen::Index;
    Eigen::Map<Eigen::ArrayXf> values(values_.data() + begin, static_cast<Index>(count));
    if (loss_scale_ != 1) values *= loss_scale_;
    if (type_ == onebitFloat16) {
      Eigen::Map<Eigen::Array<Eigen::half, Eigen::Dynamic, 1>>(
          half_.data() + begin, values.size()) = values.cast<Eigen::half>();
      return half_.data() + begin;
    }
    if (type_ == onebitBfloat16) {
      Eigen::Map<Eigen::Array<Eigen::bfloat16, Eigen::Dynamic, 1>>(
          bfloat16_.data() + begin, values.size()) = values.cast<Eigen::bfloat16>();
      return bfloat16_.data() + begin;
    }
    return values.data();
  }

 private:
  template <typename T>
  using Buffer = std::vector<T, Eigen::aligned_allocator<T>>;

  onebitDataType_t type_;
  float loss_scale_;
  Buffer<float> values_;
  Buffer<Eigen::half> half_;
  Buffer<Eigen::bfloat16> bfloat16_;
};

}  // namespace onebit::train
