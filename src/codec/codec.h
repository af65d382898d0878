// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How the elements of a call become bits, as one value: its text, and its bytes in headers and
// states (FORMAT.md, "Header"; STATE.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/low_bit.h"
#include "kernels/sparse.h"

namespace onebit {

// Odd kinds have no feedback; the next even kind is the same codec with it.
enum class CodecKind : uint8_t {
  kDense = 0,
  kSign = 1,
  kEf = 2,
  kLowBit = 3,
  kLowBitEf = 4,
  kSparse = 5,
  kSparseEf = 6,
  kBf16 = 7,
  kBf16Ef = 8,
  kLossless = 9,  // in no header: its calls are dense ones (FORMAT.md, section 22)
};

// Members of another kind have their defaults, so that equal codecs are equal values.
struct Codec {
  CodecKind kind = CodecKind::kDense;
  kernels::ScaleRule rule = kernels::ScaleRule::kL2;          // of signs
  kernels::LowBitCodec low_bit = kernels::LowBitCodec::kFp4;  // of low-bit codes
  // Only in messages and states of earlier libraries: scales of kInt8Stochastic are rounded to
  // nearest. Packets decode in the same way, and states have the same contents.
  bool has_former_scales = false;
  kernels::SparseCodec sparse = {};  // of sparse packets
  uint32_t block = 0;                // elements per scale; 0: signs with one scale for the tensor

  constexpr bool is_dense() const { return kind == CodecKind::kDense; }
  constexpr bool is_sign() const { return kind == CodecKind::kSign || kind == CodecKind::kEf; }
  // Elements become small codes with a scale per block (kernels/low_bit.h).
  constexpr bool is_low_bit() const {
    return kind == CodecKind::kLowBit || kind == CodecKind::kLowBitEf;
  }
  // Elements are rounded to bf16. Each is a block of its own, without a scale (kernels/bf16.h).
  constexpr bool is_bf16() const { return kind == CodecKind::kBf16 || kind == CodecKind::kBf16Ef; }
  // Ranks send what has changed since the last call (kernels/lossless.h).
  constexpr bool is_lossless() const { return kind == CodecKind::kLossless; }
  // Every element has a code, and not a sign alone.
  constexpr bool has_codes() const {
    return !is_dense() && !is_sign() && !is_sparse() && !is_lossless();
  }
  // Some elements of each block are sent, and nothing of the others (kernels/sparse.h).
  constexpr bool is_sparse() const {
    return kind == CodecKind::kSparse || kind == CodecKind::kSparseEf;
  }
  // The next call's input contains what this one loses.
  constexpr bool has_feedback() const { return !is_dense() && static_cast<uint8_t>(kind) % 2 == 0; }
  // The same codec's kind with feedback, or without.
  constexpr CodecKind KindIn(bool with_feedback) const {
    const int plain = static_cast<int>(kind) - (has_feedback() ? 1 : 0);
    return static_cast<CodecKind>(plain + (with_feedback ? 1 : 0));
  }
  // Servers of sums work on means, which they multiply by the number of ranks afterwards.
  constexpr bool sends_means() const { return is_dense() || is_sign(); }
  // Ranks tell each other of values that are not finite, so that all of them end such a call alike.
  // Without feedback, only signs do: other codecs leave such values to their blocks.
  constexpr bool has_verdict() const { return is_sign() || has_feedback(); }
  // Codes are rounded up or down by draws.
  constexpr bool rounds_at_random() const {
    return is_low_bit() && low_bit == kernels::LowBitCodec::kInt8Stochastic;
  }
  // Segments of a chunk are multiples of this many elements: of blocks, or where there are none, of
  // what is the smallest block of signs.
  constexpr size_t segment_unit() const {
    return is_dense() || is_bf16() ? kernels::kBlockMultiple : block;
  }

  // The bits of an element in a packet that is not sparse, and the bytes of its scales and minimums
  // together, without and with the padding behind them.
  constexpr size_t element_bits() const {
    return is_bf16() ? 16 : is_low_bit() ? kernels::CodeBits(low_bit) : 1;
  }
  constexpr size_t used_scale_bytes(size_t scales) const {
    if (is_bf16()) return 0;
    return is_low_bit() ? kernels::UsedScaleBytes(low_bit, scales) : scales * sizeof(float);
  }
  constexpr size_t scale_bytes(size_t scales) const {
    if (is_bf16()) return 0;
    return is_low_bit() ? kernels::ScaleBytes(low_bit, scales) : scales * sizeof(float);
  }

  constexpr kernels::LowBitFormat low_bit_format() const { return {low_bit, block}; }
  constexpr kernels::SparseFormat sparse_format() const { return {sparse, block}; }

  // "dense", "sign", "plain" or "ef".
  const char* Mode() const;
  // "sign", "fp4", "topk", ...
  const char* Name() const;
  // "dense", "ef block 4096 l2", "plain fp4 block 128" or "ef topk 64 of 4096 as two magnitudes".
  std::string Text() const;

  friend bool operator==(const Codec&, const Codec&) = default;
};

// "two magnitudes" or "fp32"
const char* NameOf(kernels::SparseValues values);
// "l2" or "l1"
const char* NameOf(kernels::ScaleRule rule);
// "4096", or "tensor" for 0.
std::string BlockText(uint32_t block);

// A codec in headers and states: its kind; the scale rule of signs or the number of another codec
// (FORMAT.md, sections 15, 18 and 20); its block, and in the upper half a sparse codec's k.
struct CodecOnWire {
  uint8_t kind = 0;
  uint8_t rule = 0;
  uint32_t block = 0;
};
// The number of a sparse codec says if every rank receives the packets of all.
CodecOnWire ToWire(const Codec& codec, bool has_one_hop);
// Returns nothing for bytes that ToWire does not write.
std::optional<Codec> FromWire(const CodecOnWire& wire, bool has_one_hop);

// True if the packets of sparse codecs can have this block and this k.
bool IsSparseBlock(const kernels::SparseCodec& codec, size_t block);

// A codec of the public API, and the library's one table of them.
struct CodecRow {
  int32_t number;  // onebitCodec_t
  const char* name;
  Codec codec;  // without feedback, with the default block
  // The blocks that a configuration may have, except in an all-to-all-v: multiples of a number.
  struct Blocks {
    int32_t multiple;
    int32_t least;
    int32_t most;
    const char* text;
  } blocks;
  uint8_t wire = 0;  // of low-bit codecs (FORMAT.md, section 15)
};
// Null if there is none of this number.
const CodecRow* FindCodec(int32_t number);
// "sign, fp4, ..."
std::string CodecNames();

}  // namespace onebit
