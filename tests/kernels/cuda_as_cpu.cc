// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements the functions of `cpu` by launches of CUDA kernels, so that every test of the former
// also tests the latter. Each call uses another number of CTAs, the other generation of a residual,
// and another layout of received data.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/lamb.h"
#include "kernels/optimizer.h"
#include "kernels/zero_one.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/guarded_memory.h"

namespace onebit::kernels {
namespace {

using cuda::Launch;
using cuda::NextChoice;
using cuda::OnePiece;

// The words behind a residual's `current`: only bit 0 counts.
constexpr uint32_t kFirst = 6;

constexpr uint32_t kSecond = 0x80000001u;

void SetResidual(const void* in, void* out, cuda::Piece* piece) {
  if (in == nullptr) return;
  void* const read = const_cast<void*>(in);
  const bool is_second = out != nullptr && NextChoice() % 2 == 0;
  piece->residuals[0] = is_second ? out : read;
  piece->residuals[1] = is_second || out == nullptr ? read : out;
  piece->current = is_second ? &kSecond : NextChoice() % 2 == 0 ? &kFirst : nullptr;
}

cuda::CompressParams ParamsOf(const CompressInput& in, size_t tile_elements, float* scales,
                              uint8_t* bits, uint32_t* verdict) {
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
  piece.verdict = verdict;
  SetResidual(in.residual_in, in.residual_out, &piece);
  return p;
}

void AddTiles(const std::vector<cuda::TileSum>& tiles, uint32_t verdict, TensorSum* sum) {
  for (const cuda::TileSum& tile : tiles) {
    sum->sum += tile.sum;
    sum->element_count += tile.element_count;
  }
  sum->is_finite = sum->is_finite && verdict == 0;
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
                            size_t tile_elements, float* scales, uint8_t* bits, uint32_t* verdict) {
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
  piece.verdict = verdict;
  piece.source = packets.sources;
  piece.own_source = packets.own_source;
  piece.source_bits = bits_offset;
  SetResidual(in.residual_in, in.residual_out, &piece);
  return p;
}

// Computes a scale by kFinishScale from one tile that has the whole sum.
float FinishScale(const TensorSum& sum, ScaleRule rule, uint32_t ranks, bool is_sum,
                  DataType output_type) {
  const cuda::TileSum tile = {sum.sum, sum.element_count};
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
  std::vector<cuda::TileSum> tiles(BlockCount(count, kTensorSumBlock));
  double sum = -1;
  const cuda::SumParams p = {values, type, count, tiles.data(), &sum};
  Launch(kernel, p);
  Launch(cuda::Kernel::kFinishSum, p);
  return sum;
}

LambNorms RunLamb(cuda::Kernel kernel, const LambUpdate& update) {
  std::vector<cuda::LambTile> tiles(BlockCount(update.count, kTensorSumBlock));
  LambNorms norms;
  norms.max_ratio = -1;
  const cuda::LambParams p = {update, tiles.data(), &norms};
  Launch(kernel, p);
  Launch(cuda::Kernel::kFinishLamb, p);
  return norms;
}

}  // namespace

namespace cpu {

bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits) {
  uint32_t verdict = 0;
  cuda::CompressParams p = ParamsOf(in, block, scales, bits, &verdict);
  p.block = static_cast<uint32_t>(block);
  Launch(cuda::Kernel::kCompressBlocks, p);
  return verdict == 0;
}

void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum) {
  uint32_t verdict = 0;
  cuda::CompressParams p = ParamsOf(in, kTensorSumBlock, nullptr, bits, &verdict);
  std::vector<cuda::TileSum> tiles(p.list.tiles);
  p.tile_sums = tiles.data();
  Launch(cuda::Kernel::kCompressSigns, p);
  AddTiles(tiles, verdict, sum);
}

void CompressResidual(const CompressInput& in, float scale) {
  Launch(cuda::Kernel::kCompressResidual, ParamsOf(in, kTensorSumBlock, &scale, nullptr, nullptr));
}

bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits) {
  uint32_t verdict = 0;
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, block, &bits_offset);
  cuda::ReduceParams p = ParamsOf(in, sources, bits_offset, block, scales, bits, &verdict);
  p.block = static_cast<uint32_t>(block);
  Launch(cuda::Kernel::kReduceBlocks, p);
  return verdict == 0;
}

void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum) {
  uint32_t verdict = 0;
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, 0, &bits_offset);
  cuda::ReduceParams p =
      ParamsOf(in, sources, bits_offset, kTensorSumBlock, nullptr, bits, &verdict);
  std::vector<cuda::TileSum> tiles(p.list.tiles);
  p.tile_sums = tiles.data();
  Launch(cuda::Kernel::kReduceSigns, p);
  AddTiles(tiles, verdict, sum);
}

void ReduceResidual(const ReduceInput& in, float t) {
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, 0, &bits_offset);
  Launch(cuda::Kernel::kReduceResidual,
         ParamsOf(in, sources, bits_offset, kTensorSumBlock, &t, nullptr, nullptr));
}

bool DecodeAverage(const ReduceInput& in, size_t block, void* output) {
  uint32_t verdict = 0;
  size_t bits_offset = 0;
  const PlacedSources sources = PlacePackets(in, block, &bits_offset);
  cuda::ReduceParams p =
      ParamsOf(in, sources, bits_offset, kTensorSumBlock, nullptr, nullptr, &verdict);
  p.block = static_cast<uint32_t>(block);
  p.list.pieces[0].values = output;
  Launch(cuda::Kernel::kDecodeAverage, p);
  return verdict == 0;
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
  uint32_t verdict = 0;
  cuda::DecodeParams p =
      ParamsOf(in.bits, in.scales, in.count, block, in.mask, in.output_type, output);
  p.list.pieces[0].verdict = &verdict;
  SetResidual(in.held_in, in.held_out, &p.list.pieces[0]);
  Launch(cuda::Kernel::kAddDelta, p);
  return verdict == 0;
}

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output) {
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

void AdamDense(const AdamUpdate& update) { Launch(cuda::Kernel::kAdamDense, update); }

void AdamFrozen(const AdamUpdate& update) { Launch(cuda::Kernel::kAdamFrozen, update); }

void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1,
                   float one_minus_beta1, const uint8_t* mask, size_t count, float* out) {
  Launch(
      cuda::Kernel::kLocalMomentum,
      cuda::LocalMomentumParams{m, g, g_type, g_scale, beta1, one_minus_beta1, mask, count, out});
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
  Launch(cuda::Kernel::kMaskOfNonzero, cuda::MaskParams{v, count, mask, &set_bits});
  return set_bits - kBefore;
}

LambNorms LambDense(const LambUpdate& update) { return RunLamb(cuda::Kernel::kLambDense, update); }

LambNorms LambFrozen(const LambUpdate& update) {
  return RunLamb(cuda::Kernel::kLambFrozen, update);
}

void ZeroOneLocal(const ZeroOneUpdate& update) { Launch(cuda::Kernel::kZeroOneLocal, update); }

void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out) {
  Launch(cuda::Kernel::kZeroOneAccumulate, cuda::ZeroOneAccumulateParams{update, out});
}

void ZeroOneSync(const ZeroOneUpdate& update) { Launch(cuda::Kernel::kZeroOneSync, update); }

void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,
                     float beta2, float one_minus_beta2, size_t count, float* out) {
  Launch(
      cuda::Kernel::kRefreshVariance,
      cuda::RefreshVarianceParams{v, input, type, input_scale, beta2, one_minus_beta2, count, out});
}

}  // namespace cpu
}  // namespace onebit::kernels
