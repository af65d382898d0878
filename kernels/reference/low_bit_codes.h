// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codes of the low-bit codecs, one element at a time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/low_bit.h"
#include "kernels/reference/low_bit_scale.h"
#include "kernels/reference/philox.h"

namespace onebit::kernels::reference {

// ---- Packed codes

ONEBIT_HOST_DEVICE inline uint32_t CodeAt(const uint8_t* codes, LowBitCodec codec, size_t i) {
  const size_t bits = CodeBits(codec);
  return (uint32_t{codes[i * bits / 8]} >> (i * bits % 8)) & ((1u << bits) - 1);
}

// Elements must be written in ascending order: the first of a byte clears the rest of it.
ONEBIT_HOST_DEVICE inline void WriteCode(uint32_t code, LowBitCodec codec, size_t i,
                                         uint8_t* codes) {
  const size_t bits = CodeBits(codec);
  uint8_t& byte = codes[i * bits / 8];
  if (i * bits % 8 == 0) byte = 0;
  byte = static_cast<uint8_t>(byte | (code << (i * bits % 8)));
}

// ---- Codes to values

// The value of the index of kFp4: 0, .5, 1, 1.5, 2, 3, 4, 6.
ONEBIT_HOST_DEVICE inline float Fp4Magnitude(uint32_t index) {
  const float steps = static_cast<float>(index % 4);
  switch (index / 4) {
    case 0:
      return steps / 2;
    default:
      return index < 6 ? 2 + steps : 2 * steps;
  }
}

// The value of a code in units of the scale, without the minimum.
ONEBIT_HOST_DEVICE inline float UnitsOfCode(LowBitCodec codec, uint32_t code) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return (code & 8) != 0 ? -Fp4Magnitude(code & 7) : Fp4Magnitude(code & 7);
    case LowBitCodec::kInt8:
    case LowBitCodec::kInt8Stochastic:
      return static_cast<float>(static_cast<int8_t>(code));
    case LowBitCodec::kUint8:
      return static_cast<float>(code);
    case LowBitCodec::kInt2:
      return static_cast<float>(static_cast<int>(code ^ 2) - 2) + 0.5f;
  }
  return 0;
}

// The product is exact. A minimum is added only by the codec that has one: the sum of -0 and +0
// would be +0.
ONEBIT_HOST_DEVICE inline float ValueOfCode(LowBitCodec codec, uint32_t code, float scale,
                                            float minimum) {
  const float product = UnitsOfCode(codec, code) * scale;
  return HasMinimum(codec) ? product + minimum : product;
}

// ---- Numbers to codes

ONEBIT_HOST_DEVICE inline float Clamp(float value, float low, float high) {
  return value < low ? low : value > high ? high : value;
}

ONEBIT_HOST_DEVICE inline uint32_t Fp4Code(float t) {
  constexpr float kThresholds[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  uint32_t index = 0;
  for (const float threshold : kThresholds) index += threshold <= std::abs(t) ? 1u : 0u;
  return t < 0 && index != 0 ? index | 8u : index;
}

// The code of z in a finite block. `random` is the element's draw if the codec has one.
ONEBIT_HOST_DEVICE inline uint32_t CodeOf(LowBitCodec codec, float z, const LowBitScale& block,
                                          uint32_t random) {
  const float t = (HasMinimum(codec) ? z - block.minimum : z) * block.inverse;
  switch (codec) {
    case LowBitCodec::kFp4:
      return Fp4Code(t);
    case LowBitCodec::kInt8:
      return static_cast<uint8_t>(static_cast<int>(std::rint(Clamp(t, -127, 127))));
    case LowBitCodec::kUint8:
      return static_cast<uint8_t>(static_cast<int>(Clamp(std::rint(t), 0, 255)));
    case LowBitCodec::kInt2:
      return static_cast<uint32_t>(static_cast<int>(Clamp(std::floor(t), -2, 1))) & 3u;
    case LowBitCodec::kInt8Stochastic: {
      const float floor = std::floor(t);
      const float fraction = t - floor;
      const float rounded = floor + (UniformOf(random) < fraction ? 1.0f : 0.0f);
      return static_cast<uint8_t>(static_cast<int>(Clamp(rounded, -127, 127)));
    }
  }
  return 0;
}

}  // namespace onebit::kernels::reference
