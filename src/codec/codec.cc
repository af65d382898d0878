// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/codec.h"

#include <algorithm>

#include "base/format.h"
#include "onebit/onebit.h"

namespace onebit {
namespace {

using kernels::LowBitCodec;
using kernels::ScaleRule;
using kernels::SparseCodec;
using kernels::SparseValues;

constexpr CodecRow::Blocks kBlocksOfSigns = {kernels::kBlockMultiple, 0, 1 << 30,
                                             "ONEBIT_BLOCK_TENSOR or a multiple of 64 up to 2^30"};
constexpr CodecRow::Blocks kLowBitBlocks = {32, 32, 65'536,
                                            "a multiple of 32 from 32 to 65536 with this codec"};
constexpr CodecRow::Blocks kSparseBlocks = {kernels::kBlockMultiple, 320, kernels::kMaxSparseBlock,
                                            "a multiple of 64 from 320 to 4096 with this codec"};

constexpr CodecRow::Blocks kNoBlocks = {
    1, 1, 1, "nothing but ONEBIT_UNDEF_INT (in Python None) with this codec, which has no scales"};

constexpr CodecRow LowBitRow(int32_t number, const char* name, uint32_t block, LowBitCodec codec,
                             uint8_t wire) {
  return {number,
          name,
          {.kind = CodecKind::kLowBit, .low_bit = codec, .block = block},
          kLowBitBlocks,
          wire};
}

constexpr CodecRow SparseRow(int32_t number, const char* name, bool is_random) {
  return {number,
          name,
          {.kind = CodecKind::kSparse, .sparse = {.is_random = is_random}, .block = 4096},
          kSparseBlocks};
}

constexpr uint8_t kInt8Stochastic = 0x70;
// The number that it had while its scales were rounded to nearest. It is read, but never written.
constexpr uint8_t kFormerInt8Stochastic = 0x40;

// On the wire, bits 0 and 1: width (8, 4 or 2 bits). Bits 2 and 3: grid (integer, e2m1,
// half-integer, min-max). Bits 4 and 5: scale (bf16 to nearest, or 3: bf16 rounded up). Bit 6:
// stochastic.
constexpr CodecRow kCodecs[] = {
    {onebitCodecSign, "sign", {.kind = CodecKind::kSign, .block = 4096}, kBlocksOfSigns},
    LowBitRow(onebitCodecFp4, "fp4", 128, LowBitCodec::kFp4, 0x05),
    LowBitRow(onebitCodecInt8, "int8", 256, LowBitCodec::kInt8, 0x00),
    LowBitRow(onebitCodecUint8mm, "uint8mm", 256, LowBitCodec::kUint8, 0x0c),
    LowBitRow(onebitCodecInt2, "int2", 4096, LowBitCodec::kInt2, 0x0a),
    LowBitRow(onebitCodecInt8Stochastic, "int8s", 256, LowBitCodec::kInt8Stochastic,
              kInt8Stochastic),
    SparseRow(onebitCodecTopk, "topk", false),
    SparseRow(onebitCodecRandk, "randk", true),
    {onebitCodecBf16, "bf16", {.kind = CodecKind::kBf16, .block = 1}, kNoBlocks},
    {onebitCodecLossless, "lossless", {.kind = CodecKind::kLossless, .block = 1}, kNoBlocks},
};

// Bits of the number of a sparse codec: values (fp32, or two magnitudes), selected by draws, one
// hop, unbiased.
enum SparseOnWire : int {
  kValuesOnWire = 7,
  kTwoMagnitudesOnWire = 3,
  kRandomOnWire = 8,
  kOneHopOnWire = 16,
  kUnbiasedOnWire = 32,
};

template <typename Matches>
const CodecRow* FindRow(const Matches& matches) {
  const auto* const row = std::find_if(std::begin(kCodecs), std::end(kCodecs), matches);
  return row == std::end(kCodecs) ? nullptr : row;
}

const CodecRow* RowOf(const Codec& codec) {
  return FindRow([&](const CodecRow& row) {
    return row.codec.kind == codec.KindIn(/*with_feedback=*/false) &&
           row.codec.low_bit == codec.low_bit &&
           row.codec.sparse.is_random == codec.sparse.is_random;
  });
}

uint8_t SparseToWire(const SparseCodec& codec, bool has_one_hop) {
  return static_cast<uint8_t>((codec.values == SparseValues::kF32 ? 0 : kTwoMagnitudesOnWire) |
                              (codec.is_random ? kRandomOnWire : 0) |
                              (has_one_hop ? kOneHopOnWire : 0) |
                              (codec.is_unbiased ? kUnbiasedOnWire : 0));
}

bool ReadSparse(const CodecOnWire& wire, bool has_one_hop, Codec* codec) {
  SparseCodec& sparse = codec->sparse;
  sparse.k = static_cast<uint16_t>(wire.block >> 16);
  sparse.values =
      (wire.rule & kValuesOnWire) == 0 ? SparseValues::kF32 : SparseValues::kTwoMagnitudes;
  sparse.is_random = (wire.rule & kRandomOnWire) != 0;
  sparse.is_unbiased = (wire.rule & kUnbiasedOnWire) != 0;
  codec->block = wire.block & 0xffffu;
  return SparseToWire(sparse, has_one_hop) == wire.rule && IsSparseBlock(sparse, codec->block) &&
         (!sparse.is_unbiased || (sparse.is_random && !codec->has_feedback()));
}

bool ReadLowBit(uint8_t number, Codec* codec) {
  const bool is_former = number == kFormerInt8Stochastic;
  const uint8_t wire = is_former ? kInt8Stochastic : number;
  const CodecRow* const row =
      FindRow([&](const CodecRow& each) { return each.codec.is_low_bit() && each.wire == wire; });
  if (row == nullptr) return false;
  codec->low_bit = row->codec.low_bit;
  codec->has_former_scales = is_former;
  return true;
}

}  // namespace

const CodecRow* FindCodec(int32_t number) {
  return FindRow([&](const CodecRow& row) { return row.number == number; });
}

std::string CodecNames() {
  std::string names;
  for (const CodecRow& row : kCodecs) {
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return names;
}

CodecOnWire ToWire(const Codec& codec, bool has_one_hop) {
  const auto kind = static_cast<uint8_t>(codec.kind);
  if (codec.is_sparse()) {
    return {kind, SparseToWire(codec.sparse, has_one_hop),
            codec.block | uint32_t{codec.sparse.k} << 16};
  }
  if (codec.is_bf16()) return {kind, 0, 0};
  if (!codec.is_low_bit()) return {kind, static_cast<uint8_t>(codec.rule), codec.block};
  if (codec.has_former_scales) return {kind, kFormerInt8Stochastic, codec.block};
  const CodecRow* const row = RowOf(codec);
  return {kind, row == nullptr ? uint8_t{0xff} : row->wire, codec.block};
}

std::optional<Codec> FromWire(const CodecOnWire& wire, bool has_one_hop) {
  if (wire.kind > static_cast<uint8_t>(CodecKind::kBf16Ef)) return std::nullopt;
  Codec codec = {.kind = static_cast<CodecKind>(wire.kind), .block = wire.block};
  bool is_known = false;
  if (codec.is_sparse()) {
    is_known = ReadSparse(wire, has_one_hop, &codec);
  } else if (codec.is_low_bit()) {
    is_known = ReadLowBit(wire.rule, &codec);
  } else if (codec.is_bf16()) {
    codec.block = 1;
    is_known = wire.rule == 0 && wire.block == 0;
  } else {
    codec.rule = static_cast<ScaleRule>(wire.rule);
    is_known = codec.rule == ScaleRule::kL2 || codec.rule == ScaleRule::kL1;
  }
  return is_known ? std::optional(codec) : std::nullopt;
}

// Shorter blocks would have indices of 8 bits, which the format reserves.
bool IsSparseBlock(const SparseCodec& codec, size_t block) {
  if (block % kernels::kBlockMultiple != 0 || block <= 256 || block > kernels::kMaxSparseBlock) {
    return false;
  }
  return codec.k >= 1 && codec.k <= block / 2;
}

const char* Codec::Mode() const {
  if (is_dense()) return "dense";
  if (kind == CodecKind::kSign) return "sign";
  return has_feedback() ? "ef" : "plain";
}

const char* Codec::Name() const {
  if (is_dense()) return "dense";
  const CodecRow* const row = RowOf(*this);
  return row == nullptr ? "?" : row->name;
}

std::string Codec::Text() const {
  if (is_dense()) return Mode();
  if (is_lossless()) return Name();
  if (is_sparse()) {
    return Format("{} {} {} of {} as {}", Mode(), Name(), sparse.k, block, NameOf(sparse.values));
  }
  if (is_bf16()) return Format("{} {}", Mode(), Name());
  if (is_low_bit()) return Format("{} {} block {}", Mode(), Name(), block);
  return Format("{} block {} {}", Mode(), BlockText(block), NameOf(rule));
}

const char* NameOf(SparseValues values) {
  return values == SparseValues::kF32 ? "fp32" : "two magnitudes";
}

const char* NameOf(ScaleRule rule) { return rule == ScaleRule::kL2 ? "l2" : "l1"; }

std::string BlockText(uint32_t block) { return block == 0 ? "tensor" : Format("{}", block); }

}  // namespace onebit
