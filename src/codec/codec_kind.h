// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codecs, as headers and states number and error texts name them (FORMAT.md, "Header").
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/low_bit.h"
#include "kernels/sparse.h"

namespace onebit {

enum class CodecKind : uint8_t {
  kDense = 0,
  kSign = 1,
  kEf = 2,
  kLowBit = 3,
  kLowBitEf = 4,
  kSparse = 5,
  kSparseEf = 6,
};

// True if what a call loses is added to the next call's input.
constexpr bool HasFeedback(CodecKind kind) {
  return kind == CodecKind::kEf || kind == CodecKind::kLowBitEf || kind == CodecKind::kSparseEf;
}

// True if elements become small codes with a scale per block (kernels/low_bit.h).
constexpr bool IsLowBit(CodecKind kind) {
  return kind == CodecKind::kLowBit || kind == CodecKind::kLowBitEf;
}

// True if some elements of each block are sent, and nothing of the others (kernels/sparse.h).
constexpr bool IsSparse(CodecKind kind) {
  return kind == CodecKind::kSparse || kind == CodecKind::kSparseEf;
}

// True if servers of sums work on means, which they multiply by the number of ranks afterwards.
constexpr bool SendsMeans(CodecKind kind) { return !IsLowBit(kind) && !IsSparse(kind); }

// True if ranks tell each other of values that are not finite, so that all of them end such a call
// alike. Without feedback, a low-bit or sparse call leaves such values to their blocks instead.
constexpr bool HasVerdict(CodecKind kind) {
  return kind != CodecKind::kDense && kind != CodecKind::kLowBit && kind != CodecKind::kSparse;
}

// The number of a low-bit codec (FORMAT.md, section 15), and back.
uint8_t WireCodeOf(kernels::LowBitCodec codec);
// The number that kInt8Stochastic had while its scales were rounded to nearest. Its packets decode
// in the same way and its states have the same contents, so it is still read, but never written.
inline constexpr uint8_t kFormerInt8Stochastic = 0x40;
std::optional<kernels::LowBitCodec> LowBitCodecOf(uint8_t wire_code);

// The same for a sparse codec (FORMAT.md, section 18), whose `k` the number does not contain. With
// one hop, every rank receives the packets of all.
uint8_t WireCodeOf(const kernels::SparseCodec& codec, bool has_one_hop);
struct NumberedSparseCodec {
  kernels::SparseCodec codec;
  bool has_one_hop = false;
};
std::optional<NumberedSparseCodec> SparseCodecOf(uint8_t wire_code);
// True if the packets of sparse codecs can have this block and this k.
bool IsSparseBlock(const kernels::SparseCodec& codec, size_t block);

// "dense", "sign", "plain" or "ef".
const char* ModeOf(CodecKind kind);
// "sign", or the name of the low-bit or sparse codec.
const char* NameOfCodec(CodecKind kind, kernels::LowBitCodec low_bit,
                        const kernels::SparseCodec& sparse = {});
// "two magnitudes" or "fp32"
const char* NameOfValues(kernels::SparseValues values);

}  // namespace onebit
