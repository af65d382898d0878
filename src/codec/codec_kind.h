// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codecs, as headers and states number and error texts name them (FORMAT.md, "Header").
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/low_bit.h"

namespace onebit {

enum class CodecKind : uint8_t { kDense = 0, kSign = 1, kEf = 2, kLowBit = 3, kLowBitEf = 4 };

// True if what a call loses is added to the next call's input.
constexpr bool HasFeedback(CodecKind kind) {
  return kind == CodecKind::kEf || kind == CodecKind::kLowBitEf;
}

// True if elements become small codes with a scale per block (kernels/low_bit.h).
constexpr bool IsLowBit(CodecKind kind) {
  return kind == CodecKind::kLowBit || kind == CodecKind::kLowBitEf;
}

// True if ranks tell each other of values that are not finite, so that all of them end such a call
// alike. Without feedback, a low-bit call leaves such values to their blocks instead.
constexpr bool HasVerdict(CodecKind kind) {
  return kind != CodecKind::kDense && kind != CodecKind::kLowBit;
}

// The number of a low-bit codec (FORMAT.md, section 15), and back.
uint8_t WireCodeOf(kernels::LowBitCodec codec);
std::optional<kernels::LowBitCodec> LowBitCodecOf(uint8_t wire_code);

// "dense", "sign", "plain" or "ef".
const char* ModeOf(CodecKind kind);
// "sign", or the name of the low-bit codec.
const char* NameOfCodec(CodecKind kind, kernels::LowBitCodec low_bit);

}  // namespace onebit
