// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA kernels: many pieces in one launch give the results of as many calls of the oracle, for any
// number of CTAs and at any alignment.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/tiles.h"
#include "kernels/reference/elements.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels::cuda {
namespace {

constexpr uint8_t kUntouched = 0xEE;

// Pieces of one buffer with gaps between them, of lengths that give no tile, one and several.
struct PieceLayout {
  std::vector<size_t> counts;
  std::vector<size_t> elements;  // where each begins in the buffer
  size_t element_count = 0;      // of the buffer
};

PieceLayout RandomLayout(Random& random) {
  PieceLayout layout;
  const size_t pieces = 1 + random() % (random() % 4 == 0 ? kMaxPieces : 2 * kFewPieces);
  for (size_t k = 0; k < pieces; ++k) {
    const size_t counts[] = {0, 1 + random() % 300, 4096, 4096 + random() % 9000};
    layout.element_count += random() % 3;  // so that alignments differ
    layout.elements.push_back(layout.element_count);
    layout.counts.push_back(counts[random() % 4]);
    layout.element_count += layout.counts.back();
  }
  return layout;
}

// Scales, bits and mask of every piece, each in its own part of common memory.
struct PieceMemory {
  PieceMemory(const PieceLayout& layout, size_t block, Random& random) {
    size_t scales_needed = 0, bytes_needed = 0, mask_needed = 0;
    for (const size_t count : layout.counts) {
      scale_at.push_back(scales_needed);
      scales_needed += (block == 0 ? 1 : BlockCount(count, block)) + 1;
      bits_at.push_back(bytes_needed += random() % 5);
      bytes_needed += BitBytes(count);
      mask_at.push_back(mask_needed += random() % 3);
      mask_needed += BitBytes(count);
    }
    scales.assign(scales_needed, -1);
    bits.assign(bytes_needed + 1, kUntouched);
    mask = RandomBits(8 * mask_needed + 8, random);
  }

  std::vector<size_t> scale_at, bits_at, mask_at;
  std::vector<float> scales;
  Bytes bits, mask;
};

PieceList ListOf(const PieceLayout& layout, PieceMemory* memory, size_t tile_elements) {
  PieceList list;
  list.count = static_cast<uint32_t>(layout.counts.size());
  for (size_t k = 0; k < list.count; ++k) {
    Piece& piece = list.pieces[k];
    piece.count = layout.counts[k];
    piece.scale = static_cast<uint32_t>(k);
    piece.scales = memory->scales.data() + memory->scale_at[k];
    piece.bits = memory->bits.data() + memory->bits_at[k];
    piece.first_tile = list.tiles;
    list.tiles += static_cast<uint32_t>(BlockCount(piece.count, tile_elements));
  }
  return list;
}

uint8_t* ByteAt(const void* base, size_t bytes) {
  return const_cast<uint8_t*>(static_cast<const uint8_t*>(base)) + bytes;
}

class CudaPiecesTest : public testing::Test {
 protected:
  // Makes the same calls with the oracle, one piece at a time, on copies of the launch's initial
  // memory. `k` is the number of the piece.
  template <class Params>
  CompressInput StateOf(const Params& p, const PieceLayout& layout, size_t k,
                        void* residual_out) const {
    const Piece& piece = p.list.pieces[k];
    const size_t residual_at = layout.elements[k] * BytesOf(p.residual_type);
    CompressInput in;
    in.input = piece.values;
    in.residual_in = ByteAt(residual_.data(), residual_at);
    in.residual_out = ByteAt(residual_out, residual_at);
    in.residual_type = p.residual_type;
    in.mask = piece.mask;
    in.count = piece.count;
    in.rule = p.rule;
    return in;
  }
  CompressInput WorkerInput(const CompressParams& p, const PieceLayout& layout, size_t k,
                            void* residual_out) const {
    CompressInput in = StateOf(p, layout, k, residual_out);
    in.input_type = p.input_type;
    in.scale_type = p.scale_type;
    return in;
  }

  // Gives every piece its residual, and half of all lists the mask of their memory.
  template <class Params>
  void Place(const PieceLayout& layout, const PieceMemory& memory, Params* p) {
    p->residual_type = random_() % 2 == 0 ? DataType::kF32 : DataType::kBf16;
    residual_ = RandomElements(p->residual_type, Numbers::kOrdinary, layout.element_count, random_);
    residual_in_ = residual_;
    residual_out_ = Bytes(residual_.size(), kUntouched);
    current_ = random_();
    const bool is_masked = random_() % 2 == 0;
    for (size_t k = 0; k < p->list.count; ++k) {
      Piece& piece = p->list.pieces[k];
      const size_t at = layout.elements[k] * BytesOf(p->residual_type);
      piece.residuals[current_ % 2] = residual_in_.data() + at;
      piece.residuals[1 - current_ % 2] = residual_out_.data() + at;
      piece.current = &current_;
      piece.faults = &faults_;
      if (is_masked) piece.mask = memory.mask.data() + memory.mask_at[k];
    }
  }

  CompressParams RandomParams(const PieceLayout& layout, PieceMemory* memory,
                              size_t tile_elements) {
    CompressParams p;
    p.input_type = kAllTypes[random_() % 3];
    p.scale_type = kAllTypes[random_() % 3];
    p.rule = random_() % 2 == 0 ? ScaleRule::kL2 : ScaleRule::kL1;
    p.list = ListOf(layout, memory, tile_elements);
    Place(layout, *memory, &p);
    input_ = RandomElements(p.input_type, Numbers::kOrdinary, layout.element_count, random_);
    for (size_t k = 0; k < p.list.count; ++k) {
      p.list.pieces[k].values = input_.data() + layout.elements[k] * BytesOf(p.input_type);
    }
    return p;
  }

  Bytes input_, residual_, residual_in_, residual_out_;
  uint32_t current_ = 0, faults_ = 0;
  Random random_{31};
};

TEST_F(CudaPiecesTest, CompressBlocksEqualsOneCallForEach) {
  for (int repetition = 0; repetition < Repetitions(60); ++repetition) {
    const PieceLayout layout = RandomLayout(random_);
    const size_t blocks[] = {64, 128, 192, 4096, 8192};
    const size_t block = blocks[random_() % 5];
    PieceMemory memory(layout, block, random_), expected = memory;
    CompressParams p = RandomParams(layout, &memory, block);
    p.block = static_cast<uint32_t>(block);
    Launch(Kernel::kCompressBlocks, p);
    Bytes expected_residual(residual_.size(), kUntouched);
    for (size_t k = 0; k < p.list.count; ++k) {
      const CompressInput in = WorkerInput(p, layout, k, expected_residual.data());
      EXPECT_TRUE(reference::CompressBlocks(in, block,
                                            expected.scales.data() + expected.scale_at[k],
                                            expected.bits.data() + expected.bits_at[k]));
    }
    EXPECT_EQ(faults_, 0u);
    EXPECT_EQ(memory.scales, expected.scales);
    EXPECT_EQ(memory.bits, expected.bits);
    EXPECT_EQ(residual_out_, expected_residual);
    EXPECT_EQ(residual_in_, residual_) << "the current generation was written";
  }
}

// Data written by the failed call before must stay.
TEST_F(CudaPiecesTest, HaltedCallsWriteNoResidual) {
  for (const Kernel kernel : {Kernel::kCompressBlocks, Kernel::kCompressResidual}) {
    for (const uint32_t faults : {uint32_t{kHalted}, uint32_t{kHalted | kNonfinite}, 0u}) {
      const PieceLayout layout = RandomLayout(random_);
      PieceMemory memory(layout, 4096, random_);
      CompressParams p = RandomParams(layout, &memory, 4096);
      static_assert(kTensorSumBlock == 4096);
      p.block = 4096;
      faults_ = faults;
      Launch(kernel, p);
      const bool is_untouched = residual_out_ == Bytes(residual_.size(), kUntouched);
      EXPECT_EQ(is_untouched, faults != 0 || p.list.tiles == 0);
      EXPECT_EQ(residual_in_, residual_);
    }
  }
}

// Some neighbours have one scale together.
TEST_F(CudaPiecesTest, TensorScaleEqualsTheOracle) {
  for (int repetition = 0; repetition < Repetitions(40); ++repetition) {
    const PieceLayout layout = RandomLayout(random_);
    PieceMemory memory(layout, 0, random_), expected = memory;
    CompressParams p = RandomParams(layout, &memory, kTensorSumBlock);
    const size_t most_together = repetition % 3 == 0 ? 1 : repetition % 3 == 1 ? 5 : kMaxPieces;
    for (size_t k = 1; k < p.list.count; ++k) {
      const uint32_t before = p.list.pieces[k - 1].scale;
      const bool is_alone = random_() % most_together == 0;
      p.list.pieces[k].scale = is_alone ? before + 1 : before;
    }
    std::vector<TileSum> tile_sums(p.list.tiles);
    p.tile_sums = tile_sums.data();
    FinishScaleParams finish;
    finish.tile_sums = tile_sums.data();
    finish.rule = p.rule;
    finish.ranks = random_() % 3;
    finish.is_sum = random_() % 2 == 0;
    finish.output_type = p.scale_type;
    finish.list = p.list;
    Launch(Kernel::kCompressSigns, p);
    Launch(Kernel::kFinishScale, finish);
    Launch(Kernel::kCompressResidual, p);

    Bytes expected_residual(residual_.size(), kUntouched);
    std::vector<TensorSum> sums(p.list.count);  // by number of the scale
    for (size_t k = 0; k < p.list.count; ++k) {
      const CompressInput in = WorkerInput(p, layout, k, expected_residual.data());
      uint8_t* const bits = expected.bits.data() + expected.bits_at[k];
      reference::CompressSigns(in, bits, &sums[p.list.pieces[k].scale]);
    }
    for (size_t k = 0; k < p.list.count; ++k) {
      if (layout.counts[k] == 0) continue;
      float scale = reference::ScaleOf(sums[p.list.pieces[k].scale], p.rule);
      if (finish.ranks != 0) {
        scale = reference::OutputScale(scale, finish.ranks, finish.is_sum, finish.output_type);
      }
      expected.scales[expected.scale_at[k]] = scale;
      reference::CompressResidual(WorkerInput(p, layout, k, expected_residual.data()), scale);
    }
    EXPECT_EQ(faults_, 0u);
    EXPECT_EQ(memory.scales, expected.scales);
    EXPECT_EQ(memory.bits, expected.bits);
    EXPECT_EQ(residual_out_, expected_residual);
  }
}

// Packets of all ranks that contain all pieces, one after the other.
TEST_F(CudaPiecesTest, ReduceBlocksEqualsOneCallForEach) {
  for (int repetition = 0; repetition < Repetitions(40); ++repetition) {
    const PieceLayout layout = RandomLayout(random_);
    const size_t block = random_() % 2 == 0 ? 4096 : 64;
    const size_t ranks = 1 + random_() % (repetition % 8 == 0 ? 70 : 8);
    PieceMemory memory(layout, block, random_), expected = memory;
    ReduceParams p;
    p.list = ListOf(layout, &memory, block);
    Place(layout, memory, &p);
    p.rule = random_() % 2 == 0 ? ScaleRule::kL2 : ScaleRule::kL1;
    p.output_type = kAllTypes[random_() % 3];
    p.is_sum = random_() % 2 == 0;
    p.block = static_cast<uint32_t>(block);
    const size_t scale_bytes = 4 * memory.scales.size();
    const size_t stride = (scale_bytes + memory.bits.size() + 3) / 4 * 4;
    Bytes packets(stride * ranks);
    for (uint8_t& byte : packets) byte = static_cast<uint8_t>(random_());
    for (size_t rank = 0; rank < ranks; ++rank) {
      auto* const scales = reinterpret_cast<float*>(packets.data() + rank * stride);
      for (size_t i = 0; i < memory.scales.size(); ++i) {
        scales[i] = std::abs(RandomF32(Numbers::kOrdinary, random_));
      }
    }
    const Bytes own(packets.begin() + static_cast<ptrdiff_t>(stride * (ranks - 1)), packets.end());
    p.stride = stride;
    p.rank = static_cast<uint32_t>(ranks - 1);
    p.ranks = static_cast<uint32_t>(ranks);
    std::vector<size_t> scales_at, bits_at;  // in a packet
    for (size_t k = 0; k < p.list.count; ++k) {
      Piece& piece = p.list.pieces[k];
      scales_at.push_back(4 * memory.scale_at[k]);
      bits_at.push_back(scale_bytes + memory.bits_at[k]);
      piece.source = reinterpret_cast<const std::byte*>(packets.data() + scales_at[k]);
      piece.own_source = reinterpret_cast<const std::byte*>(own.data() + scales_at[k]);
      piece.source_bits = bits_at[k] - scales_at[k];
    }
    Launch(Kernel::kReduceBlocks, p);

    Bytes expected_residual(residual_.size(), kUntouched);
    for (size_t k = 0; k < p.list.count; ++k) {
      const Piece& piece = p.list.pieces[k];
      const CompressInput state = StateOf(p, layout, k, expected_residual.data());
      std::vector<const uint8_t*> bits;
      std::vector<const float*> scales;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const uint8_t* const packet = packets.data() + rank * stride;
        bits.push_back(packet + bits_at[k]);
        scales.push_back(reinterpret_cast<const float*>(packet + scales_at[k]));
      }
      const ReduceInput in = {.bits = bits.data(),
                              .scales = scales.data(),
                              .ranks = ranks,
                              .residual_in = state.residual_in,
                              .residual_out = state.residual_out,
                              .residual_type = p.residual_type,
                              .mask = piece.mask,
                              .count = piece.count,
                              .rule = p.rule,
                              .output_type = p.output_type,
                              .is_sum = p.is_sum};
      EXPECT_TRUE(reference::ReduceBlocks(in, block, expected.scales.data() + expected.scale_at[k],
                                          expected.bits.data() + expected.bits_at[k]));
    }
    EXPECT_EQ(faults_, 0u);
    EXPECT_EQ(memory.scales, expected.scales) << "ranks " << ranks;
    EXPECT_EQ(memory.bits, expected.bits) << "ranks " << ranks;
    EXPECT_EQ(residual_out_, expected_residual) << "ranks " << ranks;
  }
}

TEST_F(CudaPiecesTest, DecodeEqualsOneCallForEach) {
  for (int repetition = 0; repetition < Repetitions(40); ++repetition) {
    const PieceLayout layout = RandomLayout(random_);
    const size_t blocks[] = {0, 64, 192, 4096, 8192};
    const size_t block = blocks[random_() % 5];
    PieceMemory memory(layout, block, random_);
    for (float& scale : memory.scales) scale = std::abs(RandomF32(Numbers::kOrdinary, random_));
    for (uint8_t& byte : memory.bits) byte = static_cast<uint8_t>(random_());
    DecodeParams p;
    p.output_type = kAllTypes[random_() % 3];
    p.block = static_cast<uint32_t>(block);
    p.list = ListOf(layout, &memory, kTensorSumBlock);
    const bool is_masked = random_() % 2 == 0;
    const size_t element_bytes = BytesOf(p.output_type);
    Bytes output(layout.element_count * element_bytes, kUntouched), expected = output;
    for (size_t k = 0; k < p.list.count; ++k) {
      Piece& piece = p.list.pieces[k];
      piece.values = output.data() + layout.elements[k] * element_bytes;
      if (is_masked) piece.mask = memory.mask.data() + memory.mask_at[k];
    }
    Launch(Kernel::kDecode, p);
    for (size_t k = 0; k < p.list.count; ++k) {
      const Piece& piece = p.list.pieces[k];
      reference::Decode(piece.bits, piece.scales, piece.count, block, piece.mask, p.output_type,
                        expected.data() + layout.elements[k] * element_bytes);
    }
    EXPECT_EQ(output, expected);
  }
}

// A value that is not finite anywhere is found by whichever warp has its tile. Otherwise the
// fault word is not written.
TEST_F(CudaPiecesTest, FaultsAreOnlySetWhereAValueIsNotFinite) {
  for (const size_t block : {size_t{64}, size_t{4096}, size_t{8192}}) {
    for (int repetition = 0; repetition < Repetitions(20); ++repetition) {
      const size_t count = 1 + random_() % 30000;
      std::vector<float> input(count, 0.5f), scales(BlockCount(count, block));
      Bytes bits(BitBytes(count));
      CompressParams p;
      p.block = static_cast<uint32_t>(block);
      p.list = OnePiece(count, block, scales.data(), bits.data());
      p.list.pieces[0].values = input.data();
      uint32_t faults = 0;
      p.list.pieces[0].faults = &faults;
      Launch(Kernel::kCompressBlocks, p);
      EXPECT_EQ(faults, 0u);
      input[random_() % count] = repetition % 2 == 0 ? NAN : -INFINITY;
      faults = kFailed;
      Launch(Kernel::kCompressBlocks, p);
      EXPECT_EQ(faults, kFailed | kNonfinite) << "bits of others stay";
    }
  }
}

TEST_F(CudaPiecesTest, FinishScaleSeesSumsAndScalesThatAreNotFinite) {
  float scale = -1;
  uint32_t faults = 0;
  TileSum tiles[2] = {{1e10, 4096}, {3e10, 4096}};
  FinishScaleParams p;
  p.tile_sums = tiles;
  p.rule = ScaleRule::kL1;
  p.list = OnePiece(8192, kTensorSumBlock, &scale, nullptr);
  p.list.pieces[0].faults = &faults;
  Launch(Kernel::kFinishScale, p);
  EXPECT_EQ(scale, 4e10f / 8192);
  EXPECT_EQ(faults, 0u);
  p.ranks = 1;
  p.output_type = DataType::kF16;  // which does not fit
  Launch(Kernel::kFinishScale, p);
  EXPECT_EQ(faults, kNonfinite);
  faults = 0;
  p.ranks = 0;
  tiles[1].sum = NAN;
  Launch(Kernel::kFinishScale, p);
  EXPECT_EQ(faults, kNonfinite);
}

// A sum whose terms before `turn` vanish beside the first one, if they are added in index order.
double TermOf(size_t tile, size_t turn) { return tile == 0 ? 0x1p60 : tile == turn ? -0x1p60 : 1; }

TEST_F(CudaPiecesTest, SumsOfManyTilesAreAddedInIndexOrder) {
  for (const size_t tiles : {31u, 32u, 33u, 128u, 129u, 300u}) {
    std::vector<TileSum> tile_sums;
    std::vector<LambTile> lamb_tiles(tiles);
    for (size_t tile = 0; tile < tiles; ++tile) {
      tile_sums.push_back({TermOf(tile, 20), 1});
      lamb_tiles[tile] = {TermOf(tile, 10), TermOf(tile, 20), TermOf(tile, 30), 0};
    }
    float scale = -1;
    FinishScaleParams p;
    p.tile_sums = tile_sums.data();
    p.rule = ScaleRule::kL1;
    p.list = OnePiece(tiles * kTensorSumBlock, kTensorSumBlock, &scale, nullptr);
    p.list.pieces[0].faults = &faults_;
    Launch(Kernel::kFinishScale, p);
    EXPECT_EQ(scale, static_cast<float>(static_cast<double>(tiles - 21) / tiles)) << tiles;
    LambNorms norms;
    LambParams lamb;
    lamb.update.count = tiles * kTensorSumBlock;
    lamb.tiles = lamb_tiles.data();
    lamb.norms = &norms;
    Launch(Kernel::kFinishLamb, lamb);
    EXPECT_EQ(norms.x_squared, tiles - 11);
    EXPECT_EQ(norms.update_squared, tiles - 21);
    EXPECT_EQ(norms.decayed_squared, tiles - 31);
  }
}

TEST_F(CudaPiecesTest, WarpsForCountsTiles) {
  CompressParams compress;
  compress.list.tiles = 77;
  EXPECT_EQ(WarpsFor(Kernel::kCompressBlocks, &compress), 77u);
  EXPECT_EQ(WarpsFor(Kernel::kCompressResidual, &compress), 77u * kTileParts);
  FinishScaleParams finish;
  finish.list.count = 5;
  EXPECT_EQ(WarpsFor(Kernel::kFinishScale, &finish), 5u);
  SumParams sum;
  sum.count = 2 * kTensorSumBlock + 1;
  EXPECT_EQ(WarpsFor(Kernel::kSumOfSquares, &sum), 3u);
  EXPECT_EQ(WarpsFor(Kernel::kFinishSum, &sum), 1u);
  AdamUpdate adam;
  EXPECT_EQ(WarpsFor(Kernel::kAdamDense, &adam), 0u);
  adam.count = 1;
  EXPECT_EQ(WarpsFor(Kernel::kAdamDense, &adam), 1u);
  FillParams fill;
  fill.count = 2;
  fill.spans[0] = {.count = kByteTile / 4, .value = FillValue::kNanF32};
  fill.spans[1] = {.count = kByteTile / 4 + 1, .value = FillValue::kNanF32};
  EXPECT_EQ(WarpsFor(Kernel::kFillIf, &fill), 1u + 2u) << "it counts elements, tiles are of bytes";
  SealParams seal;
  seal.list.count = 2;
  seal.list.calls[0].run_count = 2;
  seal.list.calls[0].runs[0] = {.bytes = 2 * kByteTile + 1, .count = 5};
  seal.list.calls[0].runs[1] = {.bytes = 1, .count = 2};
  seal.list.calls[1].run_count = 1;
  seal.list.calls[1].runs[0] = {.bytes = 0, .count = 4};
  EXPECT_EQ(WarpsFor(Kernel::kSeal, &seal), 15u + 2u + 4u) << "a header takes a warp, too";
  CommitParams commit;
  commit.count = 1;
  EXPECT_EQ(WarpsFor(Kernel::kCommit, &commit), 1u);
  commit.count = 33;
  EXPECT_EQ(WarpsFor(Kernel::kCommit, &commit), 2u) << "a lane for each call";
}

TEST_F(CudaPiecesTest, ShortListsHaveKernelsOfTheirOwn) {
  CompressParams compress;
  CommitParams commit;
  for (const uint32_t count : {1u, kFewPieces, kFewPieces + 1, kMaxPieces}) {
    compress.list.count = commit.count = count;
    const bool is_short = count <= kFewPieces;
    EXPECT_EQ(ShortestFor(Kernel::kCompressSigns, &compress),
              is_short ? Kernel::kCompressSignsFew : Kernel::kCompressSigns);
    EXPECT_EQ(ShortestFor(Kernel::kCommit, &commit),
              is_short ? Kernel::kCommitFew : Kernel::kCommit);
  }
  CheckParams check;
  check.list.count = kFewCallMessages;
  EXPECT_EQ(ShortestFor(Kernel::kCheck, &check), Kernel::kCheckFew);
  ++check.list.count;
  EXPECT_EQ(ShortestFor(Kernel::kCheck, &check), Kernel::kCheck);
  const SumParams sum;
  EXPECT_EQ(ShortestFor(Kernel::kSumOfSquares, &sum), Kernel::kSumOfSquares);
}

}  // namespace
}  // namespace onebit::kernels::cuda
