// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Element types, reductions and scale rules.
#pragma once

#include <cstddef>
#include <cstdint>

// Declares functions of `kernels::reference`, and the same of `kernels::cpu`. Builds without
// Highway have only the former, by both names.
#if defined(ONEBIT_WITHOUT_HIGHWAY)
#define ONEBIT_DECLARE_TWICE(...) \
  namespace reference {           \
  __VA_ARGS__                     \
  }                               \
  namespace cpu {                 \
  using namespace reference;      \
  }
#else
#define ONEBIT_DECLARE_TWICE(...) \
  namespace reference {           \
  __VA_ARGS__                     \
  }                               \
  namespace cpu {                 \
  __VA_ARGS__                     \
  }
#endif

namespace onebit::kernels {

// Element type of a tensor or of a residual. Only dense calls take those from kI32 on.
enum class DataType : uint8_t { kF32, kF16, kBf16, kI32, kI64, kU8, kF64 };

constexpr size_t BytesOf(DataType type) {
  switch (type) {
    case DataType::kU8:
      return 1;
    case DataType::kF16:
    case DataType::kBf16:
      return 2;
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kI64:
    case DataType::kF64:
      return 8;
  }
  return 0;
}

// Ends a switch over the other three types, in code of compressed calls and optimizers: the API
// refuses these types before. They are named, so that the compiler finds the missing case of a new
// type.
#define ONEBIT_CASES_OF_DENSE_ONLY_TYPES  \
  case ::onebit::kernels::DataType::kI32: \
  case ::onebit::kernels::DataType::kI64: \
  case ::onebit::kernels::DataType::kU8:  \
  case ::onebit::kernels::DataType::kF64: \
    break

// True if compressed calls and optimizers take the type. Sums of these types are fp32.
constexpr bool IsCompressible(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBf16;
}

// The result of a dense reduction over the elements of all ranks.
enum class DenseOp : uint8_t { kSum, kAverage, kMax, kMin };

// True if a reduction works on elements as they are stored, false if it adds them in fp32.
constexpr bool IsOfWords(DataType type, DenseOp op) {
  const bool is_added = op == DenseOp::kSum || op == DenseOp::kAverage;
  return !is_added || !IsCompressible(type);
}

// Options by which a dense reduction is more than the sum or the mean of its inputs. Reductions of
// words (IsOfWords) take the divisor alone.
struct DenseTerms {
  size_t divisor = 0;              // by which an average divides; 0: the number of inputs
  const float* factors = nullptr;  // by which inputs are multiplied before they are added; null: 1
  bool is_output_f32 = false;      // the output is fp32, whatever the type of the inputs
};

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
