// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/codec_kind.h"

namespace onebit {
namespace {

using kernels::LowBitCodec;

constexpr LowBitCodec kLowBitCodecs[] = {LowBitCodec::kFp4, LowBitCodec::kInt8, LowBitCodec::kUint8,
                                         LowBitCodec::kInt2, LowBitCodec::kInt8Stochastic};

}  // namespace

// Bits 0 and 1: width (8, 4 or 2 bits). Bits 2 and 3: grid (integer, e2m1, half-integer, min-max).
// Bit 6: stochastic.
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
      return 0x40;
  }
  return 0xff;
}

std::optional<LowBitCodec> LowBitCodecOf(uint8_t wire_code) {
  for (const LowBitCodec codec : kLowBitCodecs) {
    if (WireCodeOf(codec) == wire_code) return codec;
  }
  return std::nullopt;
}

const char* ModeOf(CodecKind kind) {
  switch (kind) {
    case CodecKind::kDense:
      return "dense";
    case CodecKind::kSign:
      return "sign";
    case CodecKind::kLowBit:
      return "plain";
    case CodecKind::kEf:
    case CodecKind::kLowBitEf:
      return "ef";
  }
  return "?";
}

const char* NameOfCodec(CodecKind kind, LowBitCodec low_bit) {
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
