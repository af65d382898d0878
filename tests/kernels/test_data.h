// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Seeded inputs of all element types and of all magnitudes, as raw bytes.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/reference/float_formats.h"
#include "kernels/types.h"

namespace onebit::kernels {

using Bytes = std::vector<uint8_t>;

enum class Numbers {
  kOrdinary,   // about 1
  kZeros,      // +0 and -0 only
  kSparse,     // mostly zeros of both signs
  kDenormal,   // smaller than any normal number of the type
  kTiny,       // sums of squares below 2^-100
  kHuge,       // sums of squares, and sums of magnitudes, beyond fp32
  kAnyFinite,  // random bits
};

inline constexpr Numbers kAllNumbers[] = {Numbers::kOrdinary, Numbers::kZeros, Numbers::kSparse,
                                          Numbers::kDenormal, Numbers::kTiny,  Numbers::kHuge,
                                          Numbers::kAnyFinite};

using Random = std::mt19937;

inline float RandomF32(Numbers numbers, Random& random) {
  const uint32_t bits = random();
  const uint32_t sign = bits & 0x80000000u;
  const float unit = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f;  // [-1, 1]
  switch (numbers) {
    case Numbers::kOrdinary:
      return unit;
    case Numbers::kZeros:
      return std::bit_cast<float>(sign);
    case Numbers::kSparse:
      return random() % 16 == 0 ? unit : std::bit_cast<float>(sign);
    case Numbers::kDenormal:
      return std::bit_cast<float>(bits & 0x807FFFFFu);
    case Numbers::kTiny:
      return unit * 0x1p-70f;
    case Numbers::kHuge:
      // z stays finite with a residual of the same size.
      return std::bit_cast<float>(sign | (bits & 0x007FFFFFu) | (252u << 23));
    case Numbers::kAnyFinite:
      return std::bit_cast<float>((bits & 0x7F800000u) == 0x7F800000u ? bits & ~0x40000000u : bits);
  }
  return 0;
}

inline uint16_t RandomF16(Numbers numbers, Random& random) {
  const auto bits = static_cast<uint16_t>(random());
  switch (numbers) {
    case Numbers::kDenormal:
      return bits & 0x83FF;
    case Numbers::kTiny:
      return bits & 0x8001;
    case Numbers::kHuge:
      return (bits & 0x83FF) | 0x7800;
    case Numbers::kAnyFinite:
      return (bits & 0x7C00) == 0x7C00 ? bits & ~0x4000 : bits;
    default:
      return reference::Fp16OfFloat(RandomF32(numbers, random));
  }
}

inline uint16_t RandomBf16(Numbers numbers, Random& random) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(RandomF32(numbers, random)) >> 16);
}

inline double RandomF64(Numbers numbers, Random& random) {
  const uint64_t bits = uint64_t{random()} << 32 | random();
  const double wide = 1 + static_cast<double>(bits) * 0x1p-84;  // uses all of the mantissa
  if (numbers == Numbers::kDenormal) return std::bit_cast<double>(bits & 0x800F'FFFF'FFFF'FFFFu);
  return RandomF32(numbers, random) * wide;
}

inline Bytes RandomElements(DataType type, Numbers numbers, size_t count, Random& random) {
  Bytes bytes(count * BytesOf(type));
  const auto fill = [&](auto zero, const auto& number) {
    for (size_t i = 0; i < count; ++i) {
      const decltype(zero) value = number(numbers, random);
      memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    }
  };
  switch (type) {
    case DataType::kF32:
      fill(float{}, RandomF32);
      break;
    case DataType::kF16:
      fill(uint16_t{}, RandomF16);
      break;
    case DataType::kBf16:
      fill(uint16_t{}, RandomBf16);
      break;
    case DataType::kF64:
      fill(double{}, RandomF64);
      break;
    case DataType::kI32:
    case DataType::kI64:
    case DataType::kU8:
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      break;
  }
  return bytes;
}

// memcmp, with null pointers allowed for no bytes.
inline bool SameBytes(const void* a, const void* b, size_t bytes) {
  return bytes == 0 || memcmp(a, b, bytes) == 0;
}

// Random bits, also in the unused part of the last byte.
inline Bytes RandomBits(size_t count, Random& random) {
  Bytes bytes(BitBytes(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Packet bits: the unused part of the last byte is 0.
inline Bytes RandomSigns(size_t count, Random& random) {
  Bytes bytes = RandomBits(count, random);
  if (count % 8 != 0) bytes.back() &= static_cast<uint8_t>((1u << (count % 8)) - 1);
  return bytes;
}

// The types of compressed calls and optimizers.
inline constexpr DataType kAllTypes[] = {DataType::kF32, DataType::kF16, DataType::kBf16};

// All lengths up to four groups of 64 and one more, which gives every kind of tail.
inline std::vector<size_t> ShortCounts() {
  std::vector<size_t> counts;
  for (size_t count = 0; count <= 257; ++count) counts.push_back(count);
  return counts;
}

// Lengths around the edges of blocks and tiles.
inline std::vector<size_t> CountsAround(size_t block) {
  return {block - 1, block, block + 1, block + 63, 2 * block - 5, 2 * block, 2 * block + 17};
}

}  // namespace onebit::kernels
