// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit packets: numbers to codes, and codes to numbers. One warp per block to compress, in two
// sweeps: the first one over memory for what the scale depends on, the second one, mostly over a
// cache, for codes and residuals. A lane has four neighbouring elements at a time, so its codes
// begin at a byte in a block of any length.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/bytes-inl.h"
#include "kernels/cuda/low_bit_params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"
#include "kernels/reference/low_bit_codes.h"
#include "kernels/reference/low_bit_scale.h"
#include "kernels/reference/philox.h"

namespace onebit::kernels::cuda {

// Calls body(std::integral_constant) with the codec, so that its arithmetic needs no branches.
template <class Body>
ONEBIT_KERNEL void WithCodec(LowBitCodec codec, const Body& body) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return body(std::integral_constant<LowBitCodec, LowBitCodec::kFp4>());
    case LowBitCodec::kInt8:
      return body(std::integral_constant<LowBitCodec, LowBitCodec::kInt8>());
    case LowBitCodec::kUint8:
      return body(std::integral_constant<LowBitCodec, LowBitCodec::kUint8>());
    case LowBitCodec::kInt2:
      return body(std::integral_constant<LowBitCodec, LowBitCodec::kInt2>());
    case LowBitCodec::kInt8Stochastic:
      return body(std::integral_constant<LowBitCodec, LowBitCodec::kInt8Stochastic>());
  }
}

// ---- Packets

// The part of a packet that belongs to a piece.
template <LowBitCodec kCodec>
ONEBIT_KERNEL LowBitPacketView ViewOf(const LowBitPiece& piece, const std::byte* packet) {
  const auto* const scales = reinterpret_cast<const uint16_t*>(packet) + piece.scale;
  return {.scales = scales,
          .minimums = HasMinimum(kCodec) ? scales + piece.scale_count : nullptr,
          .codes = reinterpret_cast<const uint8_t*>(packet) +
                   ScaleBytes(kCodec, piece.scale_count) + piece.element * CodeBits(kCodec) / 8};
}

// Returns the codes of the first `count` elements of the quad at element `i`, the first one in the
// lowest bits.
template <LowBitCodec kCodec>
ONEBIT_KERNEL uint32_t LoadCodes(const uint8_t* codes, uint64_t i, unsigned count) {
  constexpr unsigned kBits = CodeBits(kCodec);
  const uint8_t* const at = codes + i * kBits / 8;
  if constexpr (kBits == 8) {
    if (count == kQuad && IsAligned(at, 4)) return *reinterpret_cast<const uint32_t*>(at);
  } else if constexpr (kBits == 4) {
    if (count == kQuad && IsAligned(at, 2)) return *reinterpret_cast<const uint16_t*>(at);
  }
  uint32_t word = 0;
  ONEBIT_UNROLL
  for (unsigned b = 0; b < kBits / 2; ++b) {
    if (b * 8 < count * kBits) word |= uint32_t{at[b]} << (8 * b);
  }
  return word;
}

template <LowBitCodec kCodec>
ONEBIT_KERNEL void StoreCodes(uint32_t word, uint8_t* codes, uint64_t i, unsigned count) {
  constexpr unsigned kBits = CodeBits(kCodec);
  uint8_t* const at = codes + i * kBits / 8;
  if constexpr (kBits == 8) {
    if (count == kQuad && IsAligned(at, 4)) {
      *reinterpret_cast<uint32_t*>(at) = word;
      return;
    }
  } else if constexpr (kBits == 4) {
    if (count == kQuad && IsAligned(at, 2)) {
      *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(word);
      return;
    }
  }
  ONEBIT_UNROLL
  for (unsigned b = 0; b < kBits / 2; ++b) {
    if (b * 8 < count * kBits) at[b] = static_cast<uint8_t>(word >> (8 * b));
  }
}

// The numbers of the blocks in which the elements of a quad lie.
using QuadBlocks = Quad<uint32_t>;

ONEBIT_KERNEL QuadBlocks BlocksOf(uint64_t i, uint32_t block_elements) {
  uint64_t block = i / block_elements;
  auto rest = static_cast<uint32_t>(i - block * block_elements);
  QuadBlocks blocks;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c, ++rest) {
    if (rest == block_elements) {
      rest = 0;
      ++block;
    }
    blocks.at[c] = static_cast<uint32_t>(block);
  }
  return blocks;
}

template <LowBitCodec kCodec>
ONEBIT_KERNEL Quad<float> ValuesAt(const LowBitPacketView& packet, const QuadBlocks& blocks,
                                   uint64_t i, unsigned count) {
  constexpr uint32_t kCodeMask = (1u << CodeBits(kCodec)) - 1;
  const uint32_t codes = LoadCodes<kCodec>(packet.codes, i, count);
  Quad<float> values;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    if (c >= count) continue;
    float minimum = 0;
    if constexpr (HasMinimum(kCodec)) {
      minimum = reference::FloatOfBf16(packet.minimums[blocks.at[c]]);
    }
    const float scale = reference::FloatOfBf16(packet.scales[blocks.at[c]]);
    const uint32_t code = codes >> (c * CodeBits(kCodec)) & kCodeMask;
    values.at[c] = reference::ValueOfCode(kCodec, code, scale, minimum);
  }
  return values;
}

// The packet of a rank for a piece.
ONEBIT_KERNEL const std::byte* PacketOf(const LowBitReduceKind& kind, const LowBitPiece& piece,
                                        uint32_t rank) {
  return rank == kind.rank ? piece.own_source : piece.source + rank * kind.stride;
}

// The sum of the packets' values by the terms.
template <LowBitCodec kCodec>
ONEBIT_KERNEL Quad<float> SumsAt(const LowBitReduceKind& kind, const LowBitPiece& piece,
                                 const QuadBlocks& blocks, uint64_t i, unsigned count) {
  // Starting from -0 instead of 0 leaves every first term unchanged, including -0.
  Quad<float> sums = {{-0.0f, -0.0f, -0.0f, -0.0f}};
  for (uint32_t rank = 0; rank < kind.ranks; ++rank) {
    const Quad<float> values =
        ValuesAt<kCodec>(ViewOf<kCodec>(piece, PacketOf(kind, piece, rank)), blocks, i, count);
    const float factor = kind.terms.factors == nullptr ? 1.0f : kind.terms.factors[rank];
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) sums.at[c] += factor * values.at[c];
  }
  if (kind.terms.divisor == 1) return sums;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) sums.at[c] /= static_cast<float>(kind.terms.divisor);
  return sums;
}

// Bit c is set if element i + c is one of the first `count` and takes part. Blocks of any length
// begin anywhere in a byte of the mask.
ONEBIT_KERNEL uint32_t PartAt(const uint8_t* mask, uint64_t i, unsigned count) {
  const uint32_t all = (1u << count) - 1;
  if (mask == nullptr || count == 0) return all;
  uint32_t bits = mask[i / 8];
  if (i % 8 + count > 8) bits |= uint32_t{mask[i / 8 + 1]} << 8;
  return bits >> (i % 8) & all;
}

ONEBIT_KERNEL void CountNonfinite(const Warp& warp, const LowBitPiece& piece, uint32_t blocks) {
  if (blocks == 0) return;
  AddFaults(warp, piece.faults, kNonfinite);
  if (piece.words != nullptr) warp.Once([&] { AddTo(&piece.words->nonfinite_blocks, blocks); });
}

// ---- Numbers to packets

// The array that begins with a piece, for quads counted from its element `begin` on.
template <class Void>
ONEBIT_KERNEL ArrayOf<Void> ArrayFrom(Void* data, DataType type, uint64_t begin) {
  ArrayOf<Void> array = ArrayAt(data, type, begin);
  array.data = data;
  return array;
}

// z = input + residual of a block's elements. Load gives those of the group of 128 at element
// `group`, 0 from `end` on and where masked; bit c of a lane's `part` is set if its element c takes
// part.
struct LowBitWorker {
  Input input;
  Input residual;  // data null: none
  const uint8_t* mask = nullptr;

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end, Lanes<Quad<float>>* z,
                          Lanes<uint32_t>* part) const {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      (*part)[lane] = PartAt(mask, i, count);
      Quad<float> sum = LoadQuad(input, i, count);
      if (residual.data != nullptr) {
        const Quad<float> kept = LoadQuad(residual, i, count);
        ONEBIT_UNROLL
        for (unsigned c = 0; c < kQuad; ++c) sum.at[c] += kept.at[c];
      }
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        (*z)[lane].at[c] = ((*part)[lane] >> c & 1) != 0 ? sum.at[c] : 0;
      }
    });
  }
};

// y = sum or mean + residual, in the same way.
template <LowBitCodec kCodec>
struct LowBitServer {
  const LowBitReduceKind& kind;
  const LowBitPiece& piece;
  QuadBlocks blocks;
  Input residual;  // data null: none

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end, Lanes<Quad<float>>* y,
                          Lanes<uint32_t>* part) const {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      (*part)[lane] = PartAt(piece.mask, i, count);
      Quad<float> sum;
      if (count != 0) sum = SumsAt<kCodec>(kind, piece, blocks, i, count);
      if (residual.data != nullptr) {
        const Quad<float> kept = LoadQuad(residual, i, count);
        ONEBIT_UNROLL
        for (unsigned c = 0; c < kQuad; ++c) sum.at[c] += kept.at[c];
      }
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        (*y)[lane].at[c] = ((*part)[lane] >> c & 1) != 0 ? sum.at[c] : 0;
      }
    });
  }
};

// Gives SumOfLanes what it needs of a source.
template <class Source>
struct NumbersOf {
  const Source& source;

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end,
                          Lanes<Quad<float>>* z) const {
    Lanes<uint32_t> part;
    source.Load(warp, group, end, z, &part);
  }
};

// The first sweep over a block.
template <LowBitCodec kCodec, class Source>
ONEBIT_KERNEL reference::LowBitStatistics StatisticsOf(const Warp& warp, const Source& source,
                                                       uint64_t begin, uint64_t end) {
  Lanes<uint32_t> largest;  // magnitude, as bits: NaN is above all
  Lanes<float> minimum;
  Lanes<float> maximum;
  Lanes<Quad<float>> squares;
  Lanes<uint32_t> counts;
  warp.ForEachLane([&](unsigned lane) {
    minimum[lane] = INFINITY;
    maximum[lane] = -INFINITY;
  });
  for (uint64_t group = begin; group < end; group += kGroup) {
    Lanes<Quad<float>> z;
    Lanes<uint32_t> part;
    source.Load(warp, group, end, &z, &part);
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        const float value = z[lane].at[c];
        const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
        if (magnitude > largest[lane]) largest[lane] = magnitude;
        if constexpr (kCodec == LowBitCodec::kUint8) {
          if ((part[lane] >> c & 1) == 0) continue;
          if (value < minimum[lane]) minimum[lane] = value;
          if (value > maximum[lane]) maximum[lane] = value;
        }
        if constexpr (kCodec == LowBitCodec::kInt2) squares[lane].at[c] += value * value;
      }
      counts[lane] += CountOfNibble(part[lane]);
    });
  }
  const auto magnitude = std::bit_cast<float>(LargestOf(warp, largest));
  reference::LowBitStatistics block;
  block.is_in_range = magnitude < reference::kLowBitLimit;
  block.largest_magnitude = magnitude;
  if constexpr (kCodec == LowBitCodec::kUint8) {
    const float low = Fold(warp, minimum, [](float a, float b) { return a < b ? a : b; });
    const float high = LargestOf(warp, maximum);
    if (low <= high) {
      block.minimum = low;
      block.maximum = high;
    }
  }
  if constexpr (kCodec == LowBitCodec::kInt2) {
    block.element_count = SumOf(warp, counts);
    const float sum = SumOfQuads(warp, squares);
    block.sum_of_squares = sum;
    if (block.is_in_range && magnitude != 0 && !IsOrdinarySum(sum)) {
      block.sum_of_squares =
          SumOfLanes<double>(warp, NumbersOf<Source>{source}, ScaleRule::kL2, begin, end);
    }
  }
  return block;
}

ONEBIT_KERNEL uint32_t DrawOf(const reference::PhiloxWords& words, unsigned k) {
  return k == 0 ? words.word[0] : k == 1 ? words.word[1] : k == 2 ? words.word[2] : words.word[3];
}

// The random bits of the quad at element `index` of a piece. A quad that begins within a group of
// four draws needs the next group, too.
ONEBIT_KERNEL Quad<uint32_t> DrawsOf(const Draws& draws, uint32_t epoch, uint64_t index) {
  const auto draw = [&](uint64_t group) {
    return reference::Philox(
        {{static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), epoch, draws.tensor}},
        reference::LowKey(draws), reference::HighKey(draws));
  };
  const uint64_t i = draws.first + index;
  const auto skipped = static_cast<unsigned>(i % 4);
  const reference::PhiloxWords words = draw(i / 4);
  reference::PhiloxWords next = words;
  if (skipped != 0) next = draw(i / 4 + 1);
  Quad<uint32_t> random;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    random.at[c] = skipped + c < 4 ? DrawOf(words, skipped + c) : DrawOf(next, skipped + c - 4);
  }
  return random;
}

// Clears the bytes between the scales and the codes of a packet.
template <LowBitCodec kCodec>
ONEBIT_KERNEL void ClearPadding(const Warp& warp, std::byte* packet, uint32_t scale_count) {
  const uint64_t begin = UsedScaleBytes(kCodec, scale_count);
  const uint64_t end = ScaleBytes(kCodec, scale_count);
  warp.ForEachLane([&](unsigned lane) {
    if (begin + lane < end) packet[begin + lane] = std::byte{0};
  });
}

// Compresses a block. `residual` is where its residuals go, counted as the piece's elements; data
// null: nowhere.
template <LowBitCodec kCodec, class Source>
ONEBIT_KERNEL void EncodeLowBitBlock(const Warp& warp, const Source& source, const LowBitTile& tile,
                                     DataType value_type, const Output& residual) {
  const LowBitPiece& piece = tile.piece;
  const reference::LowBitScale block =
      reference::ScaleOfBlock(kCodec, StatisticsOf<kCodec>(warp, source, tile.begin, tile.end));
  auto* const scales = reinterpret_cast<uint16_t*>(piece.packet) + piece.scale;
  warp.Once([&] {
    scales[tile.index_in_piece] = block.scale_bits;
    if constexpr (HasMinimum(kCodec)) {
      scales[piece.scale_count + tile.index_in_piece] = block.minimum_bits;
    }
  });
  if (piece.scale + tile.index_in_piece + 1 == piece.scale_count) {
    ClearPadding<kCodec>(warp, piece.packet, piece.scale_count);
  }
  if (!block.is_finite) CountNonfinite(warp, piece, 1);
  auto* const codes = const_cast<uint8_t*>(ViewOf<kCodec>(piece, piece.packet).codes);
  const uint32_t epoch =
      piece.words == nullptr ? piece.draws.epoch : static_cast<uint32_t>(piece.words->epoch);
  Lanes<bool> is_infinite;
  for (uint64_t group = tile.begin; group < tile.end; group += kGroup) {
    Lanes<Quad<float>> z;
    Lanes<uint32_t> part;
    source.Load(warp, group, tile.end, &z, &part);
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, tile.end);
      if (count == 0) return;
      Quad<uint32_t> random;
      if constexpr (kCodec == LowBitCodec::kInt8Stochastic) random = DrawsOf(piece.draws, epoch, i);
      uint32_t word = 0;
      Quad<uint32_t> lost;
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        if ((part[lane] >> c & 1) == 0) continue;
        const float value = z[lane].at[c];
        const uint32_t code =
            block.is_finite ? reference::CodeOf(kCodec, value, block, random.at[c]) : 0;
        word |= code << (c * CodeBits(kCodec));
        if (residual.data == nullptr) continue;
        const float kept = reference::ValueOfCode(kCodec, code, block.scale, block.minimum);
        const float rounded = FloatOfBits(value_type, BitsOfFloat(value_type, kept));
        lost.at[c] = BitsOfFloat(residual.type, value - rounded);
        if (!AreBitsFinite(residual.type, lost.at[c])) is_infinite[lane] = true;
      }
      StoreCodes<kCodec>(word, codes, i, count);
      if (residual.data != nullptr) StoreQuadBits(lost, residual, i, count);
    });
  }
  if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunLowBitCompress(const Warp& warp, const LowBitCompressParamsOf<kPieces>& p) {
  WithCodec(p.codec, [&](auto codec) {
    const auto compress = [&](const LowBitTile& tile, const ResidualPair& residual) {
      const LowBitPiece& piece = tile.piece;
      const LowBitWorker source = {
          .input = ArrayFrom(static_cast<const void*>(piece.values), p.input_type, tile.begin),
          .residual = ArrayFrom(residual.in, p.residual_type, tile.begin),
          .mask = piece.mask};
      EncodeLowBitBlock<decltype(codec)::value>(
          warp, source, tile, p.value_type, ArrayFrom(residual.out, p.residual_type, tile.begin));
    };
    ForEachResidualTile(warp, p.list, p.block, p.keeps_residual, compress);
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunLowBitReduce(const Warp& warp, const LowBitReduceParamsOf<kPieces>& p) {
  WithCodec(p.codec, [&](auto codec) {
    constexpr LowBitCodec kCodec = decltype(codec)::value;
    const auto reduce = [&](const LowBitTile& tile, const ResidualPair& residual) {
      const auto block = static_cast<uint32_t>(tile.index_in_piece);
      const LowBitServer<kCodec> source = {
          .kind = p,
          .piece = tile.piece,
          .blocks = {{block, block, block, block}},
          .residual = ArrayFrom(residual.in, p.residual_type, tile.begin)};
      EncodeLowBitBlock<kCodec>(warp, source, tile, p.output_type,
                                ArrayFrom(residual.out, p.residual_type, tile.begin));
    };
    ForEachResidualTile(warp, p.list, p.block, /*keeps_residual=*/true, reduce);
  });
}

// ---- Packets to numbers

// Calls body(lane, i, count) for the quads of a tile.
template <class Body>
ONEBIT_KERNEL void ForEachQuad(const Warp& warp, const LowBitTile& tile, const Body& body) {
  for (uint64_t group = tile.begin; group < tile.end; group += kGroup) {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, tile.end);
      if (count != 0) body(lane, i, count);
    });
  }
}

// Counts those blocks that begin in a tile and for which is_nonfinite(number of the block) is true.
template <class IsNonfinite>
ONEBIT_KERNEL void CountNonfiniteBlocks(const Warp& warp, const LowBitTile& tile,
                                        uint32_t block_elements, const IsNonfinite& is_nonfinite) {
  const uint64_t first = BlockCount(tile.begin, block_elements);
  const uint64_t last = BlockCount(tile.end, block_elements);
  Lanes<uint32_t> counts;
  warp.ForEachLane([&](unsigned lane) {
    for (uint64_t block = first + lane; block < last; block += kLanes) {
      if (is_nonfinite(block)) ++counts[lane];
    }
  });
  CountNonfinite(warp, tile.piece, SumOf(warp, counts));
}

// Rounds and stores values, 0 where they take no part; notes those that are not finite.
ONEBIT_KERNEL void StoreValues(const Quad<float>& values, uint32_t part, const Output& output,
                               uint64_t i, unsigned count, bool* is_infinite) {
  Quad<uint32_t> bits;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    if ((part >> c & 1) == 0) continue;
    bits.at[c] = BitsOfFloat(output.type, values.at[c]);
    if (!AreBitsFinite(output.type, bits.at[c])) *is_infinite = true;
  }
  if (output.data != nullptr) StoreQuadBits(bits, output, i, count);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunLowBitAverage(const Warp& warp, const LowBitReduceParamsOf<kPieces>& p) {
  WithCodec(p.codec, [&](auto codec) {
    constexpr LowBitCodec kCodec = decltype(codec)::value;
    ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const LowBitTile& tile) {
      const LowBitPiece& piece = tile.piece;
      const Output output = ArrayAt(piece.values, p.output_type);
      Lanes<bool> is_infinite;
      CountNonfiniteBlocks(warp, tile, p.block, [&](uint64_t block) {
        bool is_nonfinite = false;
        for (uint32_t rank = 0; rank < p.ranks; ++rank) {
          const LowBitPacketView packet = ViewOf<kCodec>(piece, PacketOf(p, piece, rank));
          is_nonfinite = is_nonfinite || reference::IsNonfiniteScale(packet.scales[block]);
        }
        return is_nonfinite;
      });
      ForEachQuad(warp, tile, [&](unsigned lane, uint64_t i, unsigned count) {
        const Quad<float> sums = SumsAt<kCodec>(p, piece, BlocksOf(i, p.block), i, count);
        StoreValues(sums, PartAt(piece.mask, i, count), output, i, count, &is_infinite[lane]);
      });
      if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
    });
  });
}

// The blocks of a packet that is decoded.
template <LowBitCodec kCodec>
ONEBIT_KERNEL void CountNonfiniteBlocks(const Warp& warp, const LowBitTile& tile,
                                        uint32_t block_elements) {
  const LowBitPacketView packet = ViewOf<kCodec>(tile.piece, tile.piece.packet);
  CountNonfiniteBlocks(warp, tile, block_elements, [&](uint64_t block) {
    return reference::IsNonfiniteScale(packet.scales[block]);
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunLowBitDecode(const Warp& warp, const LowBitDecodeParamsOf<kPieces>& p) {
  WithCodec(p.codec, [&](auto codec) {
    constexpr LowBitCodec kCodec = decltype(codec)::value;
    ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const LowBitTile& tile) {
      const LowBitPiece& piece = tile.piece;
      const LowBitPacketView packet = ViewOf<kCodec>(piece, piece.packet);
      const Output output = ArrayAt(piece.values, p.output_type);
      Lanes<bool> is_infinite;
      CountNonfiniteBlocks<kCodec>(warp, tile, p.block);
      ForEachQuad(warp, tile, [&](unsigned lane, uint64_t i, unsigned count) {
        const Quad<float> values = ValuesAt<kCodec>(packet, BlocksOf(i, p.block), i, count);
        StoreValues(values, PartAt(piece.mask, i, count), output, i, count, &is_infinite[lane]);
      });
      if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunLowBitAddDelta(const Warp& warp, const LowBitDecodeParamsOf<kPieces>& p) {
  WithCodec(p.codec, [&](auto codec) {
    constexpr LowBitCodec kCodec = decltype(codec)::value;
    const auto add = [&](const LowBitTile& tile, const ResidualPair& pair) {
      const LowBitPiece& piece = tile.piece;
      const LowBitPacketView packet = ViewOf<kCodec>(piece, piece.packet);
      const Output output = ArrayAt(piece.values, p.output_type);
      const Input held_in = ArrayAt(pair.in, DataType::kF32);
      const Output held_out = ArrayAt(pair.out, DataType::kF32);
      Lanes<bool> is_infinite;
      CountNonfiniteBlocks<kCodec>(warp, tile, p.block);
      ForEachQuad(warp, tile, [&](unsigned lane, uint64_t i, unsigned count) {
        const Quad<float> values = ValuesAt<kCodec>(packet, BlocksOf(i, p.block), i, count);
        const uint32_t part = PartAt(piece.mask, i, count);
        Quad<float> held = LoadQuad(held_in, i, count);
        Quad<float> estimate;
        ONEBIT_UNROLL
        for (unsigned c = 0; c < kQuad; ++c) {
          held.at[c] = (part >> c & 1) != 0 ? held.at[c] - values.at[c] : 0;
          estimate.at[c] = 0 - held.at[c];
        }
        StoreQuad(held, held_out, i, count);
        StoreValues(estimate, part, output, i, count, &is_infinite[lane]);
      });
      if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
    };
    ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, /*keeps_residual=*/true, add);
  });
}

}  // namespace onebit::kernels::cuda
