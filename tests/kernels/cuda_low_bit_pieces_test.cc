// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit CUDA kernels: many pieces in one launch, as parts of one packet, give the results of as
// many calls of the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "codec/packet.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels::cuda {
namespace {

constexpr uint8_t kUntouched = 0xEE;

// Pieces of a tensor that share a packet, as the chunks of a call with one exchange do. Some are
// empty.
struct Layout {
  Layout(LowBitFormat format_of_all, Random& random) : format(format_of_all) {
    const size_t pieces = 1 + random() % (random() % 4 == 0 ? kMaxLowBitPieces : 2 * kFewPieces);
    for (size_t k = 0; k < pieces; ++k) {
      const size_t counts[] = {0, 8 * (1 + random() % 40), 4096, 8 * (512 + random() % 700)};
      begins.push_back(element_count);
      scales.push_back(scale_count);
      counts_of_pieces.push_back(counts[random() % 4]);
      element_count += counts_of_pieces.back();
      scale_count += BlockCount(counts_of_pieces.back(), format.block);
    }
  }

  PacketShape shape() const {
    return {.scale_count = scale_count,
            .element_count = element_count,
            .codec = {.kind = CodecKind::kLowBit, .low_bit = format.codec}};
  }
  LowBitPacket PartOf(Bytes& packet, size_t k) const {
    return LowBitViewOf(reinterpret_cast<std::byte*>(packet.data()), shape(), scales[k], begins[k]);
  }
  LowBitPacketView ViewOf(Bytes& packet, size_t k) const {
    const LowBitPacket part = PartOf(packet, k);
    return {part.scales, part.minimums, part.codes};
  }
  // Clears what a kernel clears behind the last scale.
  void ClearPadding(Bytes& packet) const {
    for (size_t i = shape().used_scale_bytes(); i < shape().scale_bytes(); ++i) packet[i] = 0;
  }

  LowBitFormat format;
  std::vector<size_t> counts_of_pieces, begins, scales;
  size_t element_count = 0, scale_count = 0;
};

class CudaLowBitPiecesTest : public testing::Test {
 protected:
  // Every other piece is of another call, with a state of its own.
  LowBitPieceList ListOf(const Layout& layout, Bytes& packet, size_t tile_elements) {
    LowBitPieceList list;
    list.count = static_cast<uint32_t>(layout.counts_of_pieces.size());
    for (size_t k = 0; k < list.count; ++k) {
      LowBitPiece& piece = list.pieces[k];
      piece.count = layout.counts_of_pieces[k];
      piece.words = &words_[k % 2];
      piece.faults = &faults_[k % 2];
      piece.packet = reinterpret_cast<std::byte*>(packet.data());
      piece.element = layout.begins[k];
      piece.scale = static_cast<uint32_t>(layout.scales[k]);
      piece.scale_count = static_cast<uint32_t>(layout.scale_count);
      piece.draws = {.seed = 5, .first = layout.begins[k], .tensor = 3, .stream = 1};
      piece.first_tile = list.tiles;
      list.tiles += static_cast<uint32_t>(BlockCount(piece.count, tile_elements));
    }
    return list;
  }

  Draws DrawsOf(const LowBitPiece& piece) const {
    Draws draws = piece.draws;
    draws.epoch = static_cast<uint32_t>(piece.words->epoch);
    return draws;
  }

  void SetUp() override {
    words_[0].epoch = 17;
    words_[1].epoch = 4;
    words_[1].current = 1;
  }

  // Gives each piece its part of a residual of which `out` has the generation that is written.
  void Place(const Layout& layout, Bytes& in, Bytes& out, LowBitPieceList* list) const {
    for (size_t k = 0; k < list->count; ++k) {
      LowBitPiece& piece = list->pieces[k];
      const size_t at = layout.begins[k] * sizeof(float);
      piece.residuals[piece.words->current] = in.data() + at;
      piece.residuals[1 - piece.words->current] = out.data() + at;
    }
  }

  CompressorWords words_[2];
  uint32_t faults_[2] = {};
  Random random_{41};
};

constexpr size_t kBlocks[] = {32, 96, 128, 4096};

TEST_F(CudaLowBitPiecesTest, CompressEqualsOneCallForEach) {
  for (int repetition = 0; repetition < Repetitions(40); ++repetition) {
    const LowBitCodec codec = kAllLowBitCodecs[random_() % 5];
    const Layout layout({codec, kBlocks[random_() % 4]}, random_);
    const size_t bytes = layout.element_count * sizeof(float);
    Bytes input = RandomElements(DataType::kF32, Numbers::kOrdinary, layout.element_count, random_);
    Bytes residual =
        RandomElements(DataType::kF32, Numbers::kOrdinary, layout.element_count, random_);
    Bytes residual_out(bytes, kUntouched), expected_residual(bytes, kUntouched);
    Bytes packet(layout.shape().bytes(), kUntouched), expected = packet;
    const bool has_residual = HasResidual(codec);
    LowBitCompressParams p;
    p.codec = codec;
    p.block = static_cast<uint32_t>(layout.format.block);
    p.list = ListOf(layout, packet, layout.format.block);
    if (has_residual) Place(layout, residual, residual_out, &p.list);
    for (size_t k = 0; k < p.list.count; ++k) {
      LowBitPiece& piece = p.list.pieces[k];
      const size_t at = layout.begins[k] * sizeof(float);
      piece.values = input.data() + at;
      const CompressInput in = {
          .input = piece.values,
          .residual_in = has_residual ? residual.data() + at : nullptr,
          .residual_out = has_residual ? expected_residual.data() + at : nullptr,
          .count = piece.count};
      reference::LowBitCompress(in, layout.format, DrawsOf(piece), layout.PartOf(expected, k));
    }
    if (layout.element_count != 0) layout.ClearPadding(expected);
    Launch(Kernel::kLowBitCompress, p);
    EXPECT_EQ(packet, expected) << "codec " << static_cast<int>(codec);
    EXPECT_EQ(residual_out, expected_residual);
    EXPECT_EQ(faults_[0] | faults_[1], 0u);
  }
}

TEST_F(CudaLowBitPiecesTest, ReduceAndAverageEqualOneCallForEach) {
  for (int repetition = 0; repetition < Repetitions(40); ++repetition) {
    const LowBitCodec codec = kAllLowBitCodecs[random_() % 5];
    const Layout layout({codec, kBlocks[random_() % 4]}, random_);
    const size_t ranks = 1 + random_() % 8;
    const size_t stride = layout.shape().bytes() / 64 * 64 + 128;
    Bytes packets(ranks * stride);
    for (size_t r = 0; r < ranks; ++r) {
      const LowBitPacketCase content =
          RandomLowBitPackets({codec, 32}, 1, layout.element_count, Numbers::kOrdinary, random_);
      // Every piece starts a block, so there are more scales than blocks in as many elements.
      const LowBitPacketCase scales =
          RandomLowBitPackets({codec, 32}, 1, layout.scale_count * 32, Numbers::kOrdinary, random_);
      Bytes one(layout.shape().bytes());
      const LowBitPacket part = layout.PartOf(one, 0);
      const size_t scale_bytes = layout.scale_count * sizeof(uint16_t);
      if (layout.element_count != 0) {
        ASSERT_EQ(scales.scales[0].size(), layout.scale_count);
        memcpy(part.scales, scales.scales[0].data(), scale_bytes);
        if (HasMinimum(codec)) memcpy(part.minimums, scales.minimums[0].data(), scale_bytes);
        memcpy(part.codes, content.codes[0].data(), content.codes[0].size());
      }
      std::copy(one.begin(), one.end(), packets.begin() + static_cast<ptrdiff_t>(r * stride));
    }
    Bytes own(packets.begin(), packets.begin() + static_cast<ptrdiff_t>(stride));
    memset(packets.data(), kUntouched, stride);  // this rank's is elsewhere
    Bytes packet(layout.shape().bytes(), kUntouched), expected = packet;
    const size_t bytes = layout.element_count * sizeof(float);
    Bytes output(bytes, kUntouched), expected_output = output;
    LowBitReduceParams p;
    p.codec = codec;
    p.stride = stride;
    p.ranks = static_cast<uint32_t>(ranks);
    const bool is_sum = random_() % 2 == 0;
    p.terms.divisor = is_sum ? 1 : p.ranks;
    p.block = static_cast<uint32_t>(layout.format.block);
    p.list = ListOf(layout, packet, layout.format.block);
    for (size_t k = 0; k < p.list.count; ++k) {
      LowBitPiece& piece = p.list.pieces[k];
      piece.source = reinterpret_cast<const std::byte*>(packets.data());
      piece.own_source = reinterpret_cast<const std::byte*>(own.data());
      std::vector<LowBitPacketView> views;
      for (size_t r = 0; r < ranks; ++r) {
        auto* const at = reinterpret_cast<std::byte*>(r == 0 ? own.data() : &packets[r * stride]);
        const LowBitPacket part =
            LowBitViewOf(at, layout.shape(), layout.scales[k], layout.begins[k]);
        views.push_back({part.scales, part.minimums, part.codes});
      }
      const LowBitReduceInput in = {
          .packets = views.data(), .ranks = ranks, .count = piece.count, .is_sum = is_sum};
      reference::LowBitReduce(in, layout.format, DrawsOf(piece), layout.PartOf(expected, k));
      reference::LowBitAverage(in, layout.format,
                               expected_output.data() + layout.begins[k] * sizeof(float));
    }
    if (layout.element_count != 0) layout.ClearPadding(expected);
    Launch(Kernel::kLowBitReduce, p);
    EXPECT_EQ(packet, expected) << "codec " << static_cast<int>(codec);
    p.list = ListOf(layout, packet, kTensorSumBlock);
    for (size_t k = 0; k < p.list.count; ++k) {
      LowBitPiece& piece = p.list.pieces[k];
      piece.source = reinterpret_cast<const std::byte*>(packets.data());
      piece.own_source = reinterpret_cast<const std::byte*>(own.data());
      piece.packet = nullptr;
      piece.values = output.data() + layout.begins[k] * sizeof(float);
    }
    Launch(Kernel::kLowBitAverage, p);
    EXPECT_EQ(output, expected_output) << "codec " << static_cast<int>(codec);
  }
}

// Data written by the failed call before must stay.
TEST_F(CudaLowBitPiecesTest, HaltedCallsWriteNoResidual) {
  for (const bool is_delta : {false, true}) {
    for (const uint32_t faults : {uint32_t{kHalted}, uint32_t{kHalted | kNonfinite}, 0u}) {
      const Layout layout({LowBitCodec::kInt8, 128}, random_);
      const size_t bytes = layout.element_count * sizeof(float);
      Bytes values =
          RandomElements(DataType::kF32, Numbers::kOrdinary, layout.element_count, random_);
      Bytes packet(layout.shape().bytes()), in(bytes), out(bytes, kUntouched);
      faults_[0] = faults_[1] = faults;
      const auto prepare = [&](LowBitPieceList* list) {
        *list = ListOf(layout, packet, is_delta ? kTensorSumBlock : 128);
        Place(layout, in, out, list);
        for (size_t k = 0; k < list->count; ++k) {
          list->pieces[k].values = values.data() + layout.begins[k] * sizeof(float);
        }
      };
      if (is_delta) {
        LowBitDecodeParams p;
        p.codec = LowBitCodec::kInt8;
        p.block = 128;
        prepare(&p.list);
        Launch(Kernel::kLowBitAddDelta, p);
      } else {
        LowBitCompressParams p;
        p.codec = LowBitCodec::kInt8;
        p.block = 128;
        prepare(&p.list);
        Launch(Kernel::kLowBitCompress, p);
      }
      const bool is_untouched = out == Bytes(bytes, kUntouched);
      EXPECT_EQ(is_untouched, faults != 0 || bytes == 0);
    }
  }
}

// Without a fault word, values that are not finite concern nobody but their blocks, which are
// counted.
TEST_F(CudaLowBitPiecesTest, NonfiniteBlocksNeedNoFaults) {
  std::vector<float> values(1000, 1.0f);
  values[40] = values[41] = values[999] = std::numeric_limits<float>::infinity();
  Bytes packet(ScaleBytes(LowBitCodec::kInt8, 32) + 1000);
  LowBitCompressParams p;
  p.codec = LowBitCodec::kInt8;
  p.block = 32;
  p.list.count = 1;
  p.list.tiles = 32;
  LowBitPiece& piece = p.list.pieces[0];
  piece.count = values.size();
  piece.values = values.data();
  piece.words = &words_[0];
  piece.packet = reinterpret_cast<std::byte*>(packet.data());
  piece.scale_count = 32;
  Launch(Kernel::kLowBitCompress, p);
  EXPECT_EQ(words_[0].nonfinite_blocks, 2u);
  LowBitDecodeParams decode;
  decode.codec = p.codec;
  decode.block = p.block;
  decode.list = p.list;
  decode.list.tiles = 1;
  Launch(Kernel::kLowBitDecode, decode);
  EXPECT_EQ(words_[0].nonfinite_blocks, 4u);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i] != values[i], i / 32 == 1 || i / 32 == 31) << i;
  }
}

}  // namespace
}  // namespace onebit::kernels::cuda
