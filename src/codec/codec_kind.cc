// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/codec_kind.h"

namespace onebit {
namespace {

using kernels::LowBitCodec;
using kernels::SparseCodec;
using kernels::SparseValues;

constexpr LowBitCodec kLowBitCodecs[] = {LowBitCodec::kFp4, LowBitCodec::kInt8, LowBitCodec::kUint8,
                                         LowBitCodec::kInt2, LowBitCodec::kInt8Stochastic};

// Bits of the number of a sparse codec.
enum SparseOnWire : int {
  kValuesOnWire = 7,
  kTwoMagnitudesOnWire = 3,
  kRandomOnWire = 8,
  kOneHopOnWire = 16,
  kUnbiasedOnWire = 32,
};

}  // namespace

// Bits 0 and 1: width (8, 4 or 2 bits). Bits 2 and 3: grid (integer, e2m1, half-integer, min-max).
// Bits 4 and 5: scale (bf16 to nearest, or 3: bf16 rounded up). Bit 6: stochastic.
uint8_t WireCodeOf(LowBitCodec codec) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return 0x05;
    case LowBitCodec::kInt8:
      return 0x00;
    case LowBitCodec::kUint8:
      return 0x0c;
    case LowBitCodec::kInt2:
      return 0x0a;
    case LowBitCodec::kInt8Stochastic:
      return 0x70;
  }
  return 0xff;
}

std::optional<LowBitCodec> LowBitCodecOf(uint8_t wire_code) {
  for (const LowBitCodec codec : kLowBitCodecs) {
    if (WireCodeOf(codec) == wire_code) return codec;
  }
  if (wire_code == kFormerInt8Stochastic) return LowBitCodec::kInt8Stochastic;
  return std::nullopt;
}

// Bits 0 to 2: values (fp32, or two magnitudes). Bit 3: selected by draws. Bit 4: one hop. Bit 5:
// unbiased.
uint8_t WireCodeOf(const SparseCodec& codec, bool has_one_hop) {
  const int values = codec.values == SparseValues::kF32 ? 0 : kTwoMagnitudesOnWire;
  return static_cast<uint8_t>(values | (codec.is_random ? kRandomOnWire : 0) |
                              (has_one_hop ? kOneHopOnWire : 0) |
                              (codec.is_unbiased ? kUnbiasedOnWire : 0));
}

std::optional<NumberedSparseCodec> SparseCodecOf(uint8_t wire_code) {
  NumberedSparseCodec numbered;
  SparseCodec& codec = numbered.codec;
  const int values = wire_code & kValuesOnWire;
  if (values != 0 && values != kTwoMagnitudesOnWire) return std::nullopt;
  codec.values = values == 0 ? SparseValues::kF32 : SparseValues::kTwoMagnitudes;
  codec.is_random = (wire_code & kRandomOnWire) != 0;
  codec.is_unbiased = (wire_code & kUnbiasedOnWire) != 0;
  numbered.has_one_hop = (wire_code & kOneHopOnWire) != 0;
  const bool is_known = WireCodeOf(codec, numbered.has_one_hop) == wire_code;
  if (!is_known || (codec.is_unbiased && !codec.is_random)) return std::nullopt;
  return numbered;
}

// Shorter blocks would have indices of 8 bits, which the format reserves.
bool IsSparseBlock(const SparseCodec& codec, size_t block) {
  if (block % kernels::kBlockMultiple != 0 || block <= 256 || block > kernels::kMaxSparseBlock) {
    return false;
  }
  return codec.k >= 1 && codec.k <= block / 2;
}

const char* ModeOf(CodecKind kind) {
  switch (kind) {
    case CodecKind::kDense:
      return "dense";
    case CodecKind::kSign:
      return "sign";
    case CodecKind::kLowBit:
    case CodecKind::kSparse:
      return "plain";
    case CodecKind::kEf:
    case CodecKind::kLowBitEf:
    case CodecKind::kSparseEf:
      return "ef";
  }
  return "?";
}

const char* NameOfValues(SparseValues values) {
  return values == SparseValues::kF32 ? "fp32" : "two magnitudes";
}

const char* NameOfCodec(CodecKind kind, LowBitCodec low_bit, const SparseCodec& sparse) {
  if (IsSparse(kind)) return sparse.is_random ? "randk" : "topk";
  if (!IsLowBit(kind)) return "sign";
  switch (low_bit) {
    case LowBitCodec::kFp4:
      return "fp4";
    case LowBitCodec::kInt8:
      return "int8";
    case LowBitCodec::kUint8:
      return "uint8mm";
    case LowBitCodec::kInt2:
      return "int2";
    case LowBitCodec::kInt8Stochastic:
      return "int8s";
  }
  return "?";
}

}  // namespace onebit
