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

// The sum of four uniform numbers is close to a Gaussian and costs one hash.
float SeededNumber(uint64_t hash) {
  const auto part = [hash](int i) { return static_cast<int32_t>((hash >> (16 * i)) & 0xffff); };
  const int32_t sum = part(0) + part(1) + part(2) + part(3) - 2 * 0xffff;
  constexpr float kToUnitDeviation = 1.7320508f / 65536.0f;  // sqrt(12 / 4) / 2^16
  return static_cast<float>(sum) * kToUnitDeviation;
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
  }
  return kernels::DataType::kF32;
}

size_t ElementBytes(onebitDataType_t type) { return kernels::BytesOf(KernelType(type)); }

float ElementAt(const void* values, onebitDataType_t type, size_t i) {
  return kernels::reference::LoadElement(values, KernelType(type), i);
}

SeededInput::SeededInput(onebitDataType_t type, uint64_t seed, int rank)
    : type_(KernelType(type)), stream_(Hash(seed * 4096 + static_cast<uint64_t>(rank))) {}

float SeededInput::At(size_t index) const {
  const float number = SeededNumber(Hash(stream_ + index));
  if (type_ == kernels::DataType::kF32) return number;
  uint16_t rounded;
  kernels::reference::StoreElement(number, type_, 0, &rounded);
  return kernels::reference::LoadElement(&rounded, type_, 0);
}

void FillSeeded(void* values, size_t count, onebitDataType_t type, uint64_t seed, int rank) {
  const uint64_t stream = Hash(seed * 4096 + static_cast<uint64_t>(rank));
  const kernels::DataType kernel_type = KernelType(type);
  for (size_t i = 0; i < count; ++i) {
    kernels::reference::StoreElement(SeededNumber(Hash(stream + i)), kernel_type, i, values);
  }
}

Difference CompareElements(const void* a, const void* b, size_t count, onebitDataType_t type) {
  const size_t bytes = ElementBytes(type);
  if (count == 0 || std::memcmp(a, b, count * bytes) == 0) return {};
  return bytes == 4 ? CompareWords<uint32_t>(a, b, count) : CompareWords<uint16_t>(a, b, count);
}

}  // namespace onebit::perf
