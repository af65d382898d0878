// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 in integer arithmetic: widening is exact, narrowing rounds to nearest even, a NaN
// stays a NaN (quiet, with the leading bits of its payload).
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"

namespace onebit::kernels::reference {

ONEBIT_HOST_DEVICE inline float FloatOfBf16(uint16_t half) {
  return std::bit_cast<float>(uint32_t{half} << 16);
}

ONEBIT_HOST_DEVICE inline uint16_t Bf16OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  // Adding just under half a unit in the last kept bit, plus one when that bit is odd, carries
  // exactly when the value rounds up. A carry out of the mantissa gives the next exponent, or
  // infinity.
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

ONEBIT_HOST_DEVICE inline float FloatOfFp16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  uint32_t exponent = (half >> 10) & 0x1Fu;
  uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    // Subnormal, mantissa * 2^-24: shift until the leading one is the implicit bit.
    exponent = 1;
    while ((mantissa & 0x400u) == 0) {
      mantissa <<= 1;
      --exponent;  // may wrap; the sum below is modulo 2^32
    }
    mantissa &= 0x3FFu;
  }
  return std::bit_cast<float>(sign | ((exponent + (127 - 15)) << 23) | (mantissa << 13));
}

// Returns value / 2^shift, rounded to nearest even.
ONEBIT_HOST_DEVICE inline uint32_t ShiftRightRounded(uint32_t value, uint32_t shift) {
  if (shift > 31) return 0;
  const uint32_t kept = value >> shift;
  const uint32_t lost = value & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  return kept + ((lost > half || (lost == half && (kept & 1u) != 0)) ? 1u : 0u);
}

ONEBIT_HOST_DEVICE inline uint16_t Fp16OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t exponent = magnitude >> 23;
  const uint32_t mantissa = magnitude & 0x7FFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | (mantissa >> 13));
  }
  if (exponent >= 127 + 16) return static_cast<uint16_t>(sign | 0x7C00u);
  if (exponent >= 127 - 14) {
    // A carry out of the mantissa gives the next exponent, or infinity.
    const uint32_t rebased = ((exponent - (127 - 15)) << 23) | mantissa;
    return static_cast<uint16_t>(sign | ShiftRightRounded(rebased, 13));
  }
  if (exponent == 0) return static_cast<uint16_t>(sign);  // below 2^-126
  // Subnormal: in units of 2^-24 the value is (mantissa with its implicit bit) / 2^(126 -
  // exponent).
  return static_cast<uint16_t>(sign | ShiftRightRounded(mantissa | 0x800000u, 126 - exponent));
}

}  // namespace onebit::kernels::reference
