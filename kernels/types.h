// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Element types and scale rules that every kernel understands.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit::kernels {

// Element type of a tensor or of a residual.
enum class DataType : uint8_t { kF32, kF16, kBf16 };

constexpr size_t BytesOf(DataType type) { return type == DataType::kF32 ? 4 : 2; }

// Rule for a block's scale: sqrt(sum z^2 / N) or sum |z| / N.
enum class ScaleRule : uint8_t { kL2, kL1 };

// Lanes of a block sum: one warp of float4, or eight 512-bit registers; fixed so that every
// processor adds in the same order.
inline constexpr size_t kSumLanes = 128;

// Elements of one fp32 partial sum when a scale covers a whole tensor.
inline constexpr size_t kTensorSumBlock = 4096;

// Block lengths are multiples of this. Pieces of a tensor may have any length: they begin at
// multiples of 8.
inline constexpr size_t kBlockMultiple = 64;

constexpr size_t BlockCount(size_t element_count, size_t block) {
  return (element_count + block - 1) / block;
}
constexpr size_t BitBytes(size_t element_count) { return (element_count + 7) / 8; }

}  // namespace onebit::kernels
