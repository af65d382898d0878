// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Access to one element of a typed array or one bit of a packed array.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/reference/float_formats.h"
#include "kernels/types.h"

namespace onebit::kernels::reference {

inline const std::byte* ElementAt(const void* array, DataType type, size_t i) {
  return static_cast<const std::byte*>(array) + i * BytesOf(type);
}
inline std::byte* ElementAt(void* array, DataType type, size_t i) {
  return static_cast<std::byte*>(array) + i * BytesOf(type);
}

ONEBIT_HOST_DEVICE inline float LoadElement(const void* array, DataType type, size_t i) {
  switch (type) {
    case DataType::kF32:
      return static_cast<const float*>(array)[i];
    case DataType::kF16:
      return FloatOfFp16(static_cast<const uint16_t*>(array)[i]);
    case DataType::kBf16:
      return FloatOfBf16(static_cast<const uint16_t*>(array)[i]);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return 0;
}

ONEBIT_HOST_DEVICE inline void StoreElement(float value, DataType type, size_t i, void* array) {
  switch (type) {
    case DataType::kF32:
      static_cast<float*>(array)[i] = value;
      break;
    case DataType::kF16:
      static_cast<uint16_t*>(array)[i] = Fp16OfFloat(value);
      break;
    case DataType::kBf16:
      static_cast<uint16_t*>(array)[i] = Bf16OfFloat(value);
      break;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

// Returns `value` as rounded when it is stored as `type`.
ONEBIT_HOST_DEVICE inline float RoundTo(DataType type, float value) {
  switch (type) {
    case DataType::kF32:
      return value;
    case DataType::kF16:
      return FloatOfFp16(Fp16OfFloat(value));
    case DataType::kBf16:
      return FloatOfBf16(Bf16OfFloat(value));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return 0;
}

ONEBIT_HOST_DEVICE inline bool BitAt(const uint8_t* bits, size_t i) {
  return ((bits[i / 8] >> (i % 8)) & 1) != 0;
}

// Elements must be written in ascending order: the first of a byte clears the rest of it.
inline void WriteBit(bool bit, size_t i, uint8_t* bits) {
  if (i % 8 == 0) bits[i / 8] = 0;
  if (bit) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | (1u << (i % 8)));
}

ONEBIT_HOST_DEVICE inline bool TakesPart(const uint8_t* mask, size_t i) {
  return mask == nullptr || BitAt(mask, i);
}

}  // namespace onebit::kernels::reference
