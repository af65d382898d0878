// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A tensor of any element type for tests, with a chosen alignment and guards around it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/types.h"
#include "onebit/onebit.h"
#include "tests/support/dense_types.h"

namespace onebit::testing {

constexpr onebitDataType_t ApiType(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return onebitFloat32;
    case kernels::DataType::kF16:
      return onebitFloat16;
    case kernels::DataType::kBf16:
      return onebitBfloat16;
    case kernels::DataType::kI32:
      return onebitInt32;
    case kernels::DataType::kI64:
      return onebitInt64;
    case kernels::DataType::kU8:
      return onebitUint8;
    case kernels::DataType::kF64:
      return onebitFloat64;
  }
  return onebitFloat32;
}

constexpr kernels::DataType KernelType(onebitDataType_t type) {
  for (const kernels::DataType candidate : kernels::kDenseTypes) {
    if (ApiType(candidate) == type) return candidate;
  }
  return kernels::DataType::kF32;
}

constexpr onebitRedOp_t ApiOp(kernels::DenseOp op) {
  switch (op) {
    case kernels::DenseOp::kSum:
      return onebitSum;
    case kernels::DenseOp::kAverage:
      return onebitAvg;
    case kernels::DenseOp::kMax:
      return onebitMax;
    case kernels::DenseOp::kMin:
      return onebitMin;
  }
  return onebitSum;
}

class Tensor {
 public:
  // The first element is `offset_elements` after a 64-byte boundary.
  Tensor(size_t count, kernels::DataType type, size_t offset_elements = 0)
      : count_(count),
        type_(type),
        memory_(kGuardBytes + (offset_elements + count) * kernels::BytesOf(type) + kGuardBytes +
                    kBoundary,
                kGuard) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data() + kGuardBytes);
    begin_ = kGuardBytes + (kBoundary - address % kBoundary) % kBoundary +
             offset_elements * kernels::BytesOf(type);
    std::memset(data(), 0, bytes());
  }
  Tensor(const Tensor&) = delete;  // a copy would have another alignment
  Tensor& operator=(const Tensor&) = delete;
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  std::byte* data() { return memory_.data() + begin_; }
  const std::byte* data() const { return memory_.data() + begin_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * kernels::BytesOf(type_); }
  kernels::DataType type() const { return type_; }
  onebitDataType_t api_type() const { return ApiType(type_); }

  // Only of types that compressed calls take.
  float Get(size_t i) const { return kernels::reference::LoadElement(data(), type_, i); }
  void Set(size_t i, float value) { kernels::reference::StoreElement(value, type_, i, data()); }
  void Fill(float value) {
    for (size_t i = 0; i < count_; ++i) Set(i, value);
  }
  void FillNormal(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count_; ++i) Set(i, normal(random));
  }
  // Fills tensors of every type: floats as FillNormal, integers of any value.
  void FillRandom(std::mt19937& random) {
    std::normal_distribution<double> normal;
    if (kernels::IsCompressible(type_)) return FillNormal(random);
    for (size_t i = 0; i < bytes(); ++i) data()[i] = static_cast<std::byte>(random());
    if (type_ != kernels::DataType::kF64) return;
    for (size_t i = 0; i < count_; ++i) {
      const double value = normal(random);
      std::memcpy(data() + i * sizeof(value), &value, sizeof(value));
    }
  }
  void CopyFrom(const Tensor& other) { std::memcpy(data(), other.data(), bytes()); }

  bool HasBytesOf(const Tensor& other) const {
    return bytes() == other.bytes() && std::memcmp(data(), other.data(), bytes()) == 0;
  }
  // True if nothing was written outside of the elements.
  bool HasIntactGuards() const {
    const auto is_guard = [](std::byte value) { return value == kGuard; };
    const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(memory_.begin(), first, is_guard) &&
           std::all_of(first + static_cast<std::ptrdiff_t>(bytes()), memory_.end(), is_guard);
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr size_t kBoundary = 64;
  static constexpr std::byte kGuard{0xa5};

  size_t count_;
  kernels::DataType type_;
  std::vector<std::byte> memory_;
  size_t begin_;
};

}  // namespace onebit::testing
