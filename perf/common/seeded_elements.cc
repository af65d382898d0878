// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Data from a hash of position, rank and seed; comparison word by word.
#include "perf/common/seeded_elements.h"

#include <cstring>

#include "kernels/reference/elements.h"

namespace onebit::perf {
namespace {

// SplitMix64: a good 64-bit hash of a counter.
constexpr uint64_t Hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The sum of four uniform numbers is close to a Gaussian and costs one hash. Its magnitude is below
// 2^17, its deviation 2^16 / sqrt(12 / 4).
int32_t SeededInteger(uint64_t hash) {
  const auto part = [hash](int i) { return static_cast<int32_t>((hash >> (16 * i)) & 0xffff); };
  return part(0) + part(1) + part(2) + part(3) - 2 * 0xffff;
}

template <class Number>
void Put(Number number, size_t i, void* values) {
  std::memcpy(static_cast<Number*>(values) + i, &number, sizeof(number));
}

template <class Number>
Number Get(const void* values, size_t i) {
  Number number;
  std::memcpy(&number, static_cast<const Number*>(values) + i, sizeof(number));
  return number;
}

void PutSeeded(uint64_t hash, kernels::DataType type, size_t i, void* values) {
  using kernels::DataType;
  const int32_t integer = SeededInteger(hash);
  switch (type) {
    case DataType::kI32:
      return Put<int32_t>(integer, i, values);
    case DataType::kI64:
      return Put<int64_t>(integer, i, values);
    case DataType::kU8:
      return Put(static_cast<uint8_t>(hash), i, values);
    case DataType::kF64:
      return Put(integer * (1.7320508075688772 / 65536), i, values);
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBf16:
      constexpr float kToUnitDeviation = 1.7320508f / 65536.0f;
      return kernels::reference::StoreElement(static_cast<float>(integer) * kToUnitDeviation, type,
                                              i, values);
  }
}

template <class Word>
Difference CompareWords(const void* a, const void* b, size_t count) {
  Difference difference;
  for (size_t i = 0; i < count; ++i) {
    Word left, right;
    std::memcpy(&left, static_cast<const std::byte*>(a) + i * sizeof(Word), sizeof(Word));
    std::memcpy(&right, static_cast<const std::byte*>(b) + i * sizeof(Word), sizeof(Word));
    if (left == right) continue;
    if (difference.count++ == 0) difference.first = i;
  }
  return difference;
}

}  // namespace

std::string_view TypeName(onebitDataType_t type) {
  switch (type) {
    case onebitFloat16:
      return "half";
    case onebitFloat32:
      return "float";
    case onebitBfloat16:
      return "bfloat16";
    case onebitUint8:
      return "uint8";
    case onebitInt32:
      return "int32";
    case onebitInt64:
      return "int64";
    case onebitFloat64:
      return "double";
  }
  return "?";
}

std::string_view OpName(std::optional<onebitRedOp_t> op) {
  if (!op) return "none";
  switch (*op) {
    case onebitSum:
      return "sum";
    case onebitAvg:
      return "avg";
    case onebitMax:
      return "max";
    case onebitMin:
      return "min";
  }
  return "?";
}

kernels::DataType KernelType(onebitDataType_t type) {
  switch (type) {
    case onebitFloat16:
      return kernels::DataType::kF16;
    case onebitFloat32:
      return kernels::DataType::kF32;
    case onebitBfloat16:
      return kernels::DataType::kBf16;
    case onebitUint8:
      return kernels::DataType::kU8;
    case onebitInt32:
      return kernels::DataType::kI32;
    case onebitInt64:
      return kernels::DataType::kI64;
    case onebitFloat64:
      return kernels::DataType::kF64;
  }
  return kernels::DataType::kF32;
}

kernels::DenseOp KernelOp(onebitRedOp_t op) {
  switch (op) {
    case onebitSum:
      return kernels::DenseOp::kSum;
    case onebitAvg:
      return kernels::DenseOp::kAverage;
    case onebitMax:
      return kernels::DenseOp::kMax;
    case onebitMin:
      return kernels::DenseOp::kMin;
  }
  return kernels::DenseOp::kSum;
}

bool IsInteger(onebitDataType_t type) {
  return type == onebitUint8 || type == onebitInt32 || type == onebitInt64;
}

size_t ElementBytes(onebitDataType_t type) { return kernels::BytesOf(KernelType(type)); }

double ElementAt(const void* values, onebitDataType_t type, size_t i) {
  using kernels::DataType;
  switch (KernelType(type)) {
    case DataType::kI32:
      return Get<int32_t>(values, i);
    case DataType::kI64:
      return static_cast<double>(Get<int64_t>(values, i));
    case DataType::kU8:
      return Get<uint8_t>(values, i);
    case DataType::kF64:
      return Get<double>(values, i);
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBf16:
      break;
  }
  return kernels::reference::LoadElement(values, KernelType(type), i);
}

SeededInput::SeededInput(onebitDataType_t type, uint64_t seed, int rank)
    : type_(type), stream_(Hash(seed * 4096 + static_cast<uint64_t>(rank))) {}

double SeededInput::At(size_t index) const {
  alignas(8) std::byte element[8];
  PutSeeded(Hash(stream_ + index), KernelType(type_), 0, element);
  return ElementAt(element, type_, 0);
}

void FillSeeded(void* values, size_t count, onebitDataType_t type, uint64_t seed, int rank) {
  const uint64_t stream = Hash(seed * 4096 + static_cast<uint64_t>(rank));
  const kernels::DataType kernel_type = KernelType(type);
  for (size_t i = 0; i < count; ++i) PutSeeded(Hash(stream + i), kernel_type, i, values);
}

Difference CompareElements(const void* a, const void* b, size_t count, onebitDataType_t type) {
  const size_t bytes = ElementBytes(type);
  if (count == 0 || std::memcmp(a, b, count * bytes) == 0) return {};
  return bytes == 1   ? CompareWords<uint8_t>(a, b, count)
         : bytes == 2 ? CompareWords<uint16_t>(a, b, count)
         : bytes == 4 ? CompareWords<uint32_t>(a, b, count)
                      : CompareWords<uint64_t>(a, b, count);
}

}  // namespace onebit::perf
