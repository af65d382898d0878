// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the codec bf16: numbers rounded to bf16, and back (src/codec/FORMAT.md, section
// 20). The contract is that of low_bit.h with blocks of one element, codes of two bytes and no
// scales: packets have codes only.
//
// Rules of this codec
//   * A code is z rounded to nearest even, as a little-endian bf16. Packets begin at any multiple
//     of two bytes.
//   * An element is not finite if z is not, or if its code is infinite. Its code is then kBf16Nan,
//     and its residual unspecified. Of packets, every code that is infinite or NaN counts.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/low_bit.h"

namespace onebit::kernels {

inline constexpr uint16_t kBf16Nan = 0x7fc0;

constexpr bool IsFiniteBf16(uint32_t code) { return (code & 0x7f80u) != 0x7f80u; }

#define ONEBIT_BF16_DECLARE                                                                      \
  /* Worker: writes codes, and residual_out = z - v, where v is the code's value rounded to      \
     in.scale_type. in.rule is not used. */                                                      \
  LowBitResult Bf16Compress(const CompressInput& in, LowBitPacket out);                          \
  /* Server: y of all ranks, compressed again; residual_out = y - (v rounded to output_type). */ \
  LowBitResult Bf16Reduce(const LowBitReduceInput& in, LowBitPacket out);                        \
  /* y of all ranks, without a residual, rounded once to output_type; 0 outside the mask. */     \
  LowBitResult Bf16Average(const LowBitReduceInput& in, void* output);                           \
  /* held_out = held_in - v in fp32, 0 outside the mask; output = 0 - held_out, rounded once. A  \
     null output is not written. */                                                              \
  LowBitResult Bf16AddDelta(const LowBitDeltaInput& in, void* output);

ONEBIT_DECLARE_TWICE(ONEBIT_BF16_DECLARE)

#undef ONEBIT_BF16_DECLARE

}  // namespace onebit::kernels
