// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements the functions of `cpu` by launches of CUDA kernels, so that every test of the former
// also tests the latter. Each call uses another number of CTAs, the other generation of a residual,
// and another layout of received data.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "kernels/lamb.h"
#include "kernels/lossless.h"
#include "kernels/low_bit.h"
#include "kernels/optimizer.h"
#include "kernels/zero_one.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/guarded_memory.h"

#if defined(ONEBIT_WITHOUT_HIGHWAY)
#error "kernels::cpu is kernels::reference here: the tests would compare the reference with itself"
#endif

namespace onebit::kernels {

namespace {

using cuda::Launch;
using cuda::NextChoice;
using cuda::OnePiece;

// The words behind a residual's `current`: only bit 0 counts.
constexpr uint32_t kFirst = 6;

constexpr uint32_t kSecond = 0x80000001u;

// Returns true if the second generation is the one to read.
template <class PieceType>
bool SetGenerations(const void* in, void* out, PieceType* piece) {
  void* const read = const_cast<void*>(in);
  const bool is_second = out != nullptr && NextChoice() % 2 == 0;
  piece->residuals[0] = is_second ? out : read;
  piece->residuals[1] = is_second || out == nullptr ? read : out;
  return is_second;
}

void SetResidual(const void* in, void* out, cuda::Piece* piece) {
  if (in == nullptr) return;
  const bool is_second = SetGenerations(in, out, piece);
  piece->current = is_second ? &kSecond : NextChoice() % 2 == 0 ? &kFirst : nullptr;
}

cuda::CompressParams ParamsOf(const CompressInput& in, size_t tile_elements, float* scales,
                              uint8_t* bits, uint32_t* faults) {
  cuda::CompressParams p;
  p.input_type = in.input_type;
  p.scale_type = in.scale_type;
  p.residual_type = in.residual_type;
  p.keeps_residual = in.residual_out != nullptr;
  p.rule = in.rule;
  p.list = OnePiece(in.count, tile_elements, scales, bits);
  cuda::Piece& piece = p.list.pieces[0];
  piece.values = const_cast<void*>(in.input);
  piece.mask = in.mask;
  piece.faults = faults;
  SetResidual(in.residual_in, in.residual_out, &piece);
  return p;
}

void AddTiles(const std::vector<TileSum>& tiles, uint32_t faults, TensorSum* sum) {
  for (const TileSum& tile : tiles) {
    sum->sum += tile.sum;
    sum->element_count += tile.element_count;
  }
  sum->is_finite = sum->is_finite && faults == 0;
}

// Elements or packets of all ranks at one stride, and this rank's own elsewhere; both end at a
// guard page.
class PlacedSources {
 public:
  // `parts_of` returns the bytes of a rank; all ranks have equally many.
  template <class BytesOfRank>
  PlacedSources(size_t ranks, size_t bytes_each, size_t granule, const BytesOfRank& bytes_of)
      : stride_((bytes_each + granule - 1) / granule * granule + granule * (NextChoice() % 3)),
        all_(ranks * stride_ + 1),
        own_(bytes_each + 1) {
    const size_t used = (ranks - 1) * stride_ + bytes_each;
    uint8_t* const all = all_.Place(used, Edge::kHigh);
    uint8_t* const own = own_.Place(bytes_each, Edge::kHigh);
    packets_.rank = static_cast<uint32_t>(NextChoice() % ranks);
    packets_.ranks = static_cast<uint32_t>(ranks);
    packets_.stride = stride_;
    packets_.sources = reinterpret_cast<const std::byte*>(all);
    packets_.own_source = reinterpret_cast<const std::byte*>(own);
    memset(all, 0xEE, used);
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<uint8_t> bytes = bytes_of(rank);
      uint8_t* const at = rank == packets_.rank ? own : all + rank * stride_;
      if (!bytes.empty()) memcpy(at, bytes.data(), bytes.size());
    }
  }

  const cuda::SourcePackets& packets() const { return packets_; }

 private:
  size_t stride_;
  GuardedMemory all_, own_;
  cuda::SourcePackets packets_;
};

// The packets of a ReduceInput: scales, then bits, as on the wire.
PlacedSources PlacePackets(const ReduceInput& in, size_t block, size_t* bits_offset) {
  const size_t scale_count = block == 0 ? 1 : BlockCount(in.count, block);
  // A piece in the middle of a packet may begin at any byte.
  *bits_offset = 4 * scale_count + NextChoice() % 5;
  const size_t bytes_each = (*bits_offset + BitBytes(in.count) + 3) / 4 * 4;
  return PlacedSources(in.ranks, bytes_each, 4, [&](size_t rank) {
    std::vector<uint8_t> bytes(bytes_each, 0xEE);
    memcpy(bytes.data(), in.scales[rank], 4 * scale_count);
    if (in.count != 0) memcpy(bytes.data() + *bits_offset, in.bits[rank], BitBytes(in.count));
    return bytes;
  });
}

cuda::ReduceParams ParamsOf(const ReduceInput& in, const PlacedSources& sources, size_t bits_offset,
                            size_t tile_elements, float* scales, uint8_t* bits, uint32_t* faults) {
  const cuda::SourcePackets& packets = sources.packets();
  cuda::ReduceParams p;
  p.stride = packets.stride;
  p.rank = packets.rank;
  p.ranks = packets.ranks;
  p.output_type = in.output_type;
  p.residual_type = in.residual_type;
  p.rule = in.rule;
  p.is_sum = in.is_sum;
  p.list = OnePiece(in.count, tile_elements, scales, bits);
  cuda::Piece& piece = p.list.pieces[0];
  piece.mask = in.mask;
  piece.faults = faults;
  piece.source = packets.sources;
  piece.own_source = packets.own_source;
  piece.source_bits = bits_offset;
  SetResidual(in.residual_in, in.residual_out, &piece);
  return p;
}

// Computes a scale by kFinishScale from one tile that has the whole sum.
float FinishScale(const TensorSum& sum, ScaleRule rule, uint32_t ranks, bool is_sum,
                  DataType output_type) {
  const TileSum tile = {sum.sum, sum.element_count};
  float scale = -1;
  cuda::FinishScaleParams p;
  p.tile_sums = &tile;
  p.rule = rule;
  p.ranks = ranks;
  p.is_sum = is_sum;
  p.output_type = output_type;
  p.list = OnePiece(1, kTensorSumBlock, &scale, nullptr);
  Launch(cuda::Kernel::kFinishScale, p);
  return scale;
}

cuda::DecodeParams ParamsOf(const uint8_t* bits, const float* scales, size_t count, size_t block,
                            const uint8_t* mask, DataType output_type, void* output) {
  cuda::DecodeParams p;
  p.output_type = output_type;
  p.block = static_cast<uint32_t>(block);
  p.list = OnePiece(count, kTensorSumBlock, const_cast<float*>(scales), const_cast<uint8_t*>(bits));
  p.list.pieces[0].values = output;
  p.list.pieces[0].mask = mask;
  return p;
}

double SumIn(cuda::Kernel kernel, const void* values, DataType type, size_t count) {
  std::vector<TileSum> tiles(BlockCount(count, kTensorSumBlock));
  double sum = -1;
  const SumParams p = {values, type, count, tiles.data(), &sum};
  Launch(kernel, p);
  Launch(cuda::Kernel::kFinishSum, p);
  return sum;
}

// ---- Low-bit packets

// A packet in one piece of memory that ends at a guard page, but for a byte that aligns its scales.
// The case's piece is its last part.
class PlacedPacket {
 public:
  PlacedPacket(LowBitFormat format, size_t count)
      : format_(format),
        count_(count),
        blocks_(BlockCount(count, format.block)),
        scales_before_(count == 0 ? 0 : NextChoice() % 3),
        elements_before_(8 * (NextChoice() % 3)),
        bytes_((ScaleBytes(format.codec, scale_count()) +
                CodeBytes(format.codec, elements_before_ + count) + 1) /
               2 * 2),
        memory_(bytes_ + 1),
        packet_(memory_.Place(std::vector<uint8_t>(bytes_, 0xEE), Edge::kHigh)) {}

  size_t scale_count() const { return scales_before_ + blocks_; }
  size_t bytes() const { return bytes_; }
  uint8_t* data() { return packet_; }

  void SetPart(cuda::LowBitPiece* piece) {
    piece->packet = reinterpret_cast<std::byte*>(packet_);
    piece->scale = static_cast<uint32_t>(scales_before_);
    piece->scale_count = static_cast<uint32_t>(scale_count());
    piece->element = elements_before_;
  }

  void Fill(const LowBitPacketView& from) {
    if (count_ == 0) return;
    const LowBitPacket to = Part();
    memcpy(to.scales, from.scales, 2 * blocks_);
    if (HasMinimum(format_.codec)) memcpy(to.minimums, from.minimums, 2 * blocks_);
    memcpy(to.codes, from.codes, CodeBytes(format_.codec, count_));
  }

  // Throws if the bytes around the part are not as they should be.
  void CopyTo(const LowBitPacket& to) {
    if (count_ == 0) return;
    const LowBitPacket from = Part();
    memcpy(to.scales, from.scales, 2 * blocks_);
    if (HasMinimum(format_.codec)) memcpy(to.minimums, from.minimums, 2 * blocks_);
    memcpy(to.codes, from.codes, CodeBytes(format_.codec, count_));
    const size_t used = UsedScaleBytes(format_.codec, scale_count());
    const size_t codes = ScaleBytes(format_.codec, scale_count());
    for (size_t i = 0; i < bytes_; ++i) {
      const bool is_padding = i >= used && i < codes;
      const bool is_before = i < 2 * scales_before_ || (i >= codes && packet_ + i < from.codes);
      if ((is_padding && packet_[i] != 0) || (is_before && packet_[i] != 0xEE)) {
        throw std::runtime_error("byte " + std::to_string(i) + " of a packet");
      }
    }
  }

 private:
  LowBitPacket Part() {
    auto* const scales = reinterpret_cast<uint16_t*>(packet_) + scales_before_;
    return {.scales = scales,
            .minimums = HasMinimum(format_.codec) ? scales + scale_count() : nullptr,
            .codes = packet_ + ScaleBytes(format_.codec, scale_count()) +
                     CodeBytes(format_.codec, elements_before_)};
  }

  LowBitFormat format_;
  size_t count_, blocks_, scales_before_, elements_before_, bytes_;
  GuardedMemory memory_;
  uint8_t* packet_;
};

// One piece, and what a launch says about it.
class LowBitLaunch {
 public:
  cuda::LowBitPieceList List(size_t count, const uint8_t* mask, size_t tile_elements,
                             const Draws& draws) {
    cuda::LowBitPieceList list;
    list.count = 1;
    list.tiles = static_cast<uint32_t>(BlockCount(count, tile_elements));
    cuda::LowBitPiece& piece = list.pieces[0];
    piece.count = count;
    piece.mask = mask;
    piece.faults = &faults_;
    piece.draws = draws;
    piece.draws.epoch = ~draws.epoch;  // that of the words counts
    words_.epoch = draws.epoch + (uint64_t{5} << 32);
    piece.words = &words_;
    return list;
  }
  void SetResidual(const void* in, void* out, cuda::LowBitPiece* piece) {
    if (in != nullptr) words_.current = SetGenerations(in, out, piece) ? kSecond : kFirst;
  }
  LowBitResult Result() const {
    return {.nonfinite_blocks = static_cast<size_t>(words_.nonfinite_blocks),
            .is_finite = faults_ == 0};
  }

 private:
  cuda::CompressorWords words_;
  uint32_t faults_ = 0;
};

// Sets everything but the list.
cuda::LowBitReduceParams ParamsOf(const LowBitReduceInput& in, LowBitFormat format,
                                  const PlacedSources& sources) {
  cuda::LowBitReduceParams p;
  p.codec = format.codec;
  p.block = static_cast<uint32_t>(format.block);
  p.stride = sources.packets().stride;
  p.rank = sources.packets().rank;
  p.ranks = sources.packets().ranks;
  p.output_type = in.output_type;
  p.residual_type = in.residual_type;
  p.terms.divisor = in.is_sum ? 1 : p.ranks;
  return p;
}

// The packets of all ranks, with the layout of `layout`, whose content changes.
PlacedSources PlacePackets(const LowBitReduceInput& in, PlacedPacket* layout) {
  return PlacedSources(in.ranks, layout->bytes(), 16, [&](size_t rank) {
    layout->Fill(in.packets[rank]);
    return std::vector<uint8_t>(layout->data(), layout->data() + layout->bytes());
  });
}

// Puts the packets of a reduction and its destination into the only piece of a list.
void SetPackets(const PlacedSources& sources, PlacedPacket* out, cuda::LowBitPiece* piece) {
  out->SetPart(piece);
  piece->source = sources.packets().sources;
  piece->own_source = sources.packets().own_source;
}

cuda::LowBitDecodeParams DecodeParamsOf(LowBitFormat format, DataType output_type, void* output,
                                        const cuda::LowBitPieceList& list, PlacedPacket* packet) {
  cuda::LowBitDecodeParams p;
  p.codec = format.codec;
  p.output_type = output_type;
  p.block = static_cast<uint32_t>(format.block);
  p.list = list;
  p.list.pieces[0].values = output;
  packet->SetPart(&p.list.pieces[0]);
  return p;
}

// ---- bf16

// A packet of codes alone that ends at a guard page. The case's piece is its last part.
class PlacedCodes {
 public:
  explicit PlacedCodes(size_t count)
      : count_(count),
        before_(8 * (NextChoice() % 3)),
        memory_(bytes() + 1),
        codes_(memory_.Place(std::vector<uint16_t>(before_ + count, 0xEEEE), Edge::kHigh)) {}

  size_t bytes() const { return (before_ + count_) * sizeof(uint16_t); }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(codes_); }

  void SetPart(cuda::LowBitPiece* piece) {
    piece->packet = reinterpret_cast<std::byte*>(codes_);
    piece->element = before_;
  }
  void Fill(const uint8_t* codes) {
    if (count_ != 0) memcpy(codes_ + before_, codes, count_ * sizeof(uint16_t));
  }
  // Throws if anything before the part was written.
  void CopyTo(uint8_t* codes) const {
    if (count_ != 0) memcpy(codes, codes_ + before_, count_ * sizeof(uint16_t));
    for (size_t i = 0; i < before_; ++i) {
      if (codes_[i] != 0xEEEE) throw std::runtime_error("code " + std::to_string(i));
    }
  }

 private:
  size_t count_, before_;
  GuardedMemory memory_;
  uint16_t* codes_;
};

PlacedSources PlacePackets(const LowBitReduceInput& in, PlacedCodes* layout) {
  return PlacedSources(in.ranks, layout->bytes(), 16, [&](size_t rank) {
    layout->Fill(in.packets[rank].codes);
    return std::vector<uint8_t>(layout->data(), layout->data() + layout->bytes());
  });
}

LambNorms RunLamb(cuda::Kernel kernel, const LambUpdate& update) {
  std::vector<LambTile> tiles(BlockCount(update.count, kTensorSumBlock));
  LambNorms norms;
  norms.max_ratio = -1;
  const LambParams p = {update, tiles.data(), &norms};
  Launch(kernel, p);
  Launch(cuda::Kernel::kFinishLamb, p);
  return norms;
}

}  // namespace

namespace cpu {

bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits) {
  uint32_t faults = 0;
  cuda::CompressParams p = ParamsOf(in, block, scales, bits, &faults);
  p.block = static_cast<uint32_t>(block);
  Launch(cuda::Kernel::kCompressBlocks, p);
  return faults == 0;
}

void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum) {
  uint32_t faults = 0;
  cuda::CompressParams p = ParamsOf(in, kTensorSumBlock, nullptr, bits, &faults);
  std::vector<TileSum> tiles(p.list.tiles);
  p.tile_sums = tiles.data();
  Launch(cuda::Kernel::kCompressSigns, p);
  AddTiles(tiles, faults, sum);
}

void CompressResidual(const CompressInput& in, float scale) {
  Launch(cuda::Kernel::kCompressResidual, ParamsOf(in, kTensorSumBlock, &scale, nullptr, nullptr));
}

bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits) {
  uint32_t faults = 0;
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, block, &bits_offset);
  cuda::ReduceParams p = ParamsOf(in, sources, bits_offset, block, scales, bits, &faults);
  p.block = static_cast<uint32_t>(block);
  Launch(cuda::Kernel::kReduceBlocks, p);
  return faults == 0;
}

void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum) {
  uint32_t faults = 0;
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, 0, &bits_offset);
  cuda::ReduceParams p =
      ParamsOf(in, sources, bits_offset, kTensorSumBlock, nullptr, bits, &faults);
  std::vector<TileSum> tiles(p.list.tiles);
  p.tile_sums = tiles.data();
  Launch(cuda::Kernel::kReduceSigns, p);
  AddTiles(tiles, faults, sum);
}

void ReduceResidual(const ReduceInput& in, float t) {
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, 0, &bits_offset);
  Launch(cuda::Kernel::kReduceResidual,
         ParamsOf(in, sources, bits_offset, kTensorSumBlock, &t, nullptr, nullptr));
}

bool DecodeAverage(const ReduceInput& in, size_t block, void* output) {
  uint32_t faults = 0;
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, block, &bits_offset);
  cuda::ReduceParams p =
      ParamsOf(in, sources, bits_offset, kTensorSumBlock, nullptr, nullptr, &faults);
  p.block = static_cast<uint32_t>(block);
  p.list.pieces[0].values = output;
  Launch(cuda::Kernel::kDecodeAverage, p);
  return faults == 0;
}

float ScaleOf(const TensorSum& sum, ScaleRule rule) {
  return FinishScale(sum, rule, 0, false, DataType::kF32);
}

// Computes the scale of one element that equals a, or whose magnitude does.
float OutputScale(float a, size_t ranks, bool is_sum, DataType output_type) {
  return FinishScale({.sum = a, .element_count = 1}, ScaleRule::kL1, static_cast<uint32_t>(ranks),
                     is_sum, output_type);
}

void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  Launch(cuda::Kernel::kDecode, ParamsOf(bits, scales, count, block, mask, output_type, output));
}

bool AddDelta(const DeltaInput& in, size_t block, void* output) {
  uint32_t faults = 0;
  cuda::DecodeParams p =
      ParamsOf(in.bits, in.scales, in.count, block, in.mask, in.output_type, output);
  p.list.pieces[0].faults = &faults;
  SetResidual(in.held_in, in.held_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kAddDelta, p);
  return faults == 0;
}

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output, const DenseTerms& terms) {
  const size_t bytes_each = count * BytesOf(type);
  const PlacedSources sources(ranks, bytes_each, BytesOf(type), [&](size_t rank) {
    const auto* const from = static_cast<const uint8_t*>(inputs[rank]);
    return std::vector<uint8_t>(from, from + bytes_each);
  });
  cuda::DenseReduceParams p;
  p.pieces = sources.packets();
  p.output = output;
  p.type = type;
  p.op = op;
  p.count = count;
  p.terms = terms;
  Launch(cuda::DenseKernelFor(p), p);
}

Checksum ChecksumOf(const void* data, size_t bytes) {
  Checksum checksum;
  cuda::ChecksumParams p;
  p.count = 1;
  p.spans[0] = {static_cast<const std::byte*>(data), bytes, &checksum};
  Launch(cuda::Kernel::kChecksum, p);
  return checksum;
}

LosslessWord LosslessEncode(const void* now, const void* before, size_t count, size_t width,
                            LosslessScratch*, uint8_t* out) {
  uint32_t packed = 0xEEEEEEEE;
  const uint64_t start = 0;
  cuda::LosslessParams p = {.elements = const_cast<void*>(now),
                            .before = before,
                            .count = count,
                            .width = static_cast<uint32_t>(width),
                            .words = &packed,
                            .starts = &start};
  Launch(cuda::Kernel::kLosslessMeasure, p);
  const LosslessWord word = LosslessWord::Unpack(packed);
  std::vector<uint32_t> bytes((word.bytes + 3) / 4);
  p.bytes = bytes.data();
  Launch(cuda::Kernel::kLosslessWrite, p);
  if (word.bytes != 0) memcpy(out, bytes.data(), word.bytes);
  return word;
}

// A block in a packet begins at any byte.
bool LosslessDecode(const LosslessWord& word, const uint8_t* bytes, size_t count, size_t width,
                    void* copy) {
  uint32_t packed = word.Pack();
  const uint64_t start = NextChoice() % 5;
  uint32_t faults = 0;
  GuardedMemory memory(4 * ((start + word.bytes + kLosslessSlack + 3) / 4) + 1);
  std::vector<uint8_t> packet(start, 0xEE);
  packet.insert(packet.end(), bytes, bytes + word.bytes + kLosslessSlack);
  packet.resize((packet.size() + 3) / 4 * 4);
  auto* const placed = const_cast<uint8_t*>(memory.Place(packet, Edge::kHigh));
  Launch(cuda::Kernel::kLosslessDecode,
         cuda::LosslessParams{.elements = copy,
                              .count = count,
                              .width = static_cast<uint32_t>(width),
                              .words = &packed,
                              .starts = &start,
                              .bytes = reinterpret_cast<uint32_t*>(placed),
                              .faults = &faults});
  return faults == 0;
}

uint64_t LosslessDigest(const void* data, size_t bytes) {
  constexpr unsigned long long kBefore = 1000;
  unsigned long long sum = kBefore;
  Launch(cuda::Kernel::kLosslessDigest, cuda::LosslessDigestParams{data, bytes, &sum});
  return sum - kBefore;
}

void AdamDense(const AdamUpdate& update) { Launch(cuda::Kernel::kAdamDense, update); }

void AdamFrozen(const AdamUpdate& update) { Launch(cuda::Kernel::kAdamFrozen, update); }

void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1,
                   float one_minus_beta1, const uint8_t* mask, size_t count, float* out) {
  Launch(cuda::Kernel::kLocalMomentum,
         LocalMomentumParams{m, g, g_type, g_scale, beta1, one_minus_beta1, mask, count, out});
}

double SumOfSquares(const void* values, DataType type, size_t count) {
  return SumIn(cuda::Kernel::kSumOfSquares, values, type, count);
}

double SumOfMagnitudes(const void* values, DataType type, size_t count) {
  return SumIn(cuda::Kernel::kSumOfMagnitudes, values, type, count);
}

size_t MaskOfNonzero(const float* v, size_t count, uint8_t* mask) {
  constexpr unsigned long long kBefore = 1000;
  unsigned long long set_bits = kBefore;
  Launch(cuda::Kernel::kMaskOfNonzero, MaskParams{v, count, mask, &set_bits});
  return set_bits - kBefore;
}

LambNorms LambDense(const LambUpdate& update) { return RunLamb(cuda::Kernel::kLambDense, update); }

LambNorms LambFrozen(const LambUpdate& update) {
  return RunLamb(cuda::Kernel::kLambFrozen, update);
}

void ZeroOneLocal(const ZeroOneUpdate& update) { Launch(cuda::Kernel::kZeroOneLocal, update); }

void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out) {
  Launch(cuda::Kernel::kZeroOneAccumulate, ZeroOneAccumulateParams{update, out});
}

void ZeroOneSync(const ZeroOneUpdate& update) { Launch(cuda::Kernel::kZeroOneSync, update); }

void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,
                     float beta2, float one_minus_beta2, size_t count, float* out) {
  Launch(cuda::Kernel::kRefreshVariance,
         RefreshVarianceParams{v, input, type, input_scale, beta2, one_minus_beta2, count, out});
}

LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,
                            LowBitPacket out) {
  LowBitLaunch launch;
  PlacedPacket packet(format, in.count);
  cuda::LowBitCompressParams p;
  p.codec = format.codec;
  p.input_type = in.input_type;
  p.value_type = in.scale_type;
  p.residual_type = in.residual_type;
  p.keeps_residual = in.residual_out != nullptr;
  p.block = static_cast<uint32_t>(format.block);
  p.list = launch.List(in.count, in.mask, format.block, draws);
  p.list.pieces[0].values = const_cast<void*>(in.input);
  packet.SetPart(&p.list.pieces[0]);
  launch.SetResidual(in.residual_in, in.residual_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kLowBitCompress, p);
  packet.CopyTo(out);
  return launch.Result();
}

LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws,
                          LowBitPacket out) {
  LowBitLaunch launch;
  PlacedPacket packet(format, in.count);
  const PlacedSources sources = PlacePackets(in, &packet);
  memset(packet.data(), 0xEE, packet.bytes());
  cuda::LowBitReduceParams p = ParamsOf(in, format, sources);
  p.list = launch.List(in.count, in.mask, format.block, draws);
  SetPackets(sources, &packet, &p.list.pieces[0]);
  launch.SetResidual(in.residual_in, in.residual_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kLowBitReduce, p);
  packet.CopyTo(out);
  return launch.Result();
}

LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output) {
  LowBitLaunch launch;
  PlacedPacket packet(format, in.count);
  const PlacedSources sources = PlacePackets(in, &packet);
  cuda::LowBitReduceParams p = ParamsOf(in, format, sources);
  p.list = launch.List(in.count, in.mask, kTensorSumBlock, {});
  SetPackets(sources, &packet, &p.list.pieces[0]);
  p.list.pieces[0].packet = nullptr;
  p.list.pieces[0].values = output;
  Launch(cuda::Kernel::kLowBitAverage, p);
  return launch.Result();
}

LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output) {
  LowBitLaunch launch;
  PlacedPacket packet(format, in.count);
  packet.Fill(in.packet);
  cuda::LowBitDecodeParams p = DecodeParamsOf(
      format, in.output_type, output, launch.List(in.count, in.mask, kTensorSumBlock, {}), &packet);
  launch.SetResidual(in.held_in, in.held_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kLowBitAddDelta, p);
  return launch.Result();
}

LowBitResult LowBitDecode(LowBitPacketView from, LowBitFormat format, size_t count,
                          const uint8_t* mask, DataType output_type, void* output) {
  LowBitLaunch launch;
  PlacedPacket packet(format, count);
  packet.Fill(from);
  Launch(cuda::Kernel::kLowBitDecode,
         DecodeParamsOf(format, output_type, output, launch.List(count, mask, kTensorSumBlock, {}),
                        &packet));
  return launch.Result();
}

LowBitResult Bf16Compress(const CompressInput& in, LowBitPacket out) {
  LowBitLaunch launch;
  PlacedCodes packet(in.count);
  cuda::LowBitCompressParams p;
  p.input_type = in.input_type;
  p.value_type = in.scale_type;
  p.residual_type = in.residual_type;
  p.keeps_residual = in.residual_out != nullptr;
  p.list = launch.List(in.count, in.mask, kTensorSumBlock, {});
  p.list.pieces[0].values = const_cast<void*>(in.input);
  packet.SetPart(&p.list.pieces[0]);
  launch.SetResidual(in.residual_in, in.residual_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kBf16Compress, p);
  packet.CopyTo(out.codes);
  return launch.Result();
}

LowBitResult Bf16Reduce(const LowBitReduceInput& in, LowBitPacket out) {
  LowBitLaunch launch;
  PlacedCodes layout(in.count);
  const PlacedSources sources = PlacePackets(in, &layout);
  cuda::LowBitReduceParams p = ParamsOf(in, {}, sources);
  p.list = launch.List(in.count, in.mask, kTensorSumBlock, {});
  cuda::LowBitPiece& piece = p.list.pieces[0];
  layout.SetPart(&piece);
  piece.source = sources.packets().sources;
  piece.own_source = sources.packets().own_source;
  launch.SetResidual(in.residual_in, in.residual_out, &piece);
  Launch(cuda::Kernel::kBf16Reduce, p);
  layout.CopyTo(out.codes);
  return launch.Result();
}

LowBitResult Bf16Average(const LowBitReduceInput& in, void* output) {
  LowBitLaunch launch;
  PlacedCodes layout(in.count);
  const PlacedSources sources = PlacePackets(in, &layout);
  // A single packet is decoded in one of two ways.
  const bool is_decoded = in.ranks == 1 && NextChoice() % 2 == 0;
  if (is_decoded) {
    cuda::LowBitDecodeParams p;
    p.output_type = in.output_type;
    p.list = launch.List(in.count, in.mask, kTensorSumBlock, {});
    layout.SetPart(&p.list.pieces[0]);
    p.list.pieces[0].values = output;
    Launch(cuda::Kernel::kBf16Decode, p);
    return launch.Result();
  }
  cuda::LowBitReduceParams p = ParamsOf(in, {}, sources);
  p.list = launch.List(in.count, in.mask, kTensorSumBlock, {});
  cuda::LowBitPiece& piece = p.list.pieces[0];
  layout.SetPart(&piece);
  piece.source = sources.packets().sources;
  piece.own_source = sources.packets().own_source;
  piece.packet = nullptr;
  piece.values = output;
  Launch(cuda::Kernel::kBf16Average, p);
  return launch.Result();
}

LowBitResult Bf16AddDelta(const LowBitDeltaInput& in, void* output) {
  LowBitLaunch launch;
  PlacedCodes packet(in.count);
  packet.Fill(in.packet.codes);
  cuda::LowBitDecodeParams p;
  p.output_type = in.output_type;
  p.list = launch.List(in.count, in.mask, kTensorSumBlock, {});
  packet.SetPart(&p.list.pieces[0]);
  p.list.pieces[0].values = output;
  launch.SetResidual(in.held_in, in.held_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kBf16AddDelta, p);
  return launch.Result();
}

}  // namespace cpu
}  // namespace onebit::kernels
