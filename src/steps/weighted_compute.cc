// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/weighted_compute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/weighted.h"
#include "steps/low_bit_chunks.h"
#include "steps/sparse_compute.h"
#include "steps/step_compute.h"

namespace onebit {
namespace {

// Decoded values stay in the first-level cache until they are added.
constexpr size_t kTile = 2048;

PacketShape SourceShape(const Plan& plan, const Step& step) {
  PacketShape shape = step.shape;
  shape.is_weighted = true;
  if (step.chunk == kAllChunks && plan.key.codec.block == 0) shape.scale_count = 1;
  return shape;
}

// Elements from `at` on that can be decoded at once: whole blocks, or a part of one.
size_t TileAt(size_t at, size_t count, size_t block) {
  const size_t left = count - at;
  if (block == 0) return std::min(left, kTile);
  if (block > kTile) return std::min({left, kTile, block - at % block});
  return std::min(left, kTile / block * block);
}

void DecodeTile(const Call& call, const PacketShape& shape, std::byte* packet, size_t scale,
                size_t element, size_t count, const uint8_t* mask, float* values) {
  const size_t block = call.plan->key.codec.block;
  if (shape.codec.is_low_bit()) {
    const kernels::LowBitPacket from = LowBitViewOf(packet, shape, scale, element);
    const kernels::LowBitFormat format = call.plan->key.codec.low_bit_format();
    kernels::cpu::LowBitDecode({from.scales, from.minimums, from.codes}, format, count, mask,
                               kernels::DataType::kF32, values);
    return;
  }
  const PacketView from = ViewOf(packet, shape);
  kernels::cpu::Decode(from.bits + element / 8, from.scales + scale, count, block, mask,
                       kernels::DataType::kF32, values);
}

size_t NanBlocks(std::span<const float> values, size_t block) {
  size_t blocks = 0;
  for (size_t at = 0; at < values.size(); at += block) {
    const auto one = values.subspan(at, std::min(block, values.size() - at));
    if (std::ranges::any_of(one, [](float value) { return std::isnan(value); })) ++blocks;
  }
  return blocks;
}

// The result of a call without weight, which leaves residuals alone. A sparse packet of zeros has
// indices all the same.
void WriteZeros(const Call& call, const Step& step) {
  if (step.region.bytes == 0) return;
  if (!call.plan->key.codec.is_sparse() || step.packet == kNoPacket) {
    std::memset(call.Write(step.region), 0, step.region.bytes);
    return;
  }
  std::byte* const zeros = call.packets + step.mean;
  std::memset(zeros, 0, step.elements.count * sizeof(float));
  kernels::cpu::SparseCompress({.input = zeros, .count = step.elements.count}, /*ef_decay=*/1,
                               call.plan->key.codec.sparse_format(),
                               SharedDraws(call, step.elements.begin), call.Write(step.region));
}

}  // namespace

bool KeepResidual(const Call& call, const Step& compress) {
  const Compressor& compressor = *call.compressor;
  const std::byte* const from = compressor.worker_in(compress.elements.begin);
  std::byte* const to = compressor.worker_out(compress.elements.begin);
  if (from != to && compress.elements.count != 0) {
    std::memcpy(to, from,
                compress.elements.count * kernels::BytesOf(compressor.config().residual_type));
  }
  return true;
}

bool ClearOutput(const Call& call, const Step& copy) {
  const size_t bytes = copy.elements.count * kernels::BytesOf(call.plan->key.type);
  if (bytes != 0) std::memset(call.OutputAt(copy.elements.begin), 0, bytes);
  return true;
}

bool WeightedCompute::Reduce(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  for (uint32_t r = 0; r < plan.ranks; ++r) weights_[r] = WeightOf(call.PieceOf(step, r));
  weight_sum_ = kernels::cpu::SumOf(weights_.data(), plan.ranks);
  call.compressor->set_weight_sum(weight_sum_);
  if (weight_sum_ == 0) {  // nobody is present
    WriteZeros(call, step);
    return true;
  }
  if (plan.key.codec.is_low_bit() && step.packet != kNoPacket) ClearPadding(call, step);
  if (step.chunk != kAllChunks) {
    return step.elements.count == 0 || ReducePart(call, step, {step.chunk, step.elements});
  }
  bool is_finite = true;
  size_t scale = 0;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    if (elements.count == 0) continue;
    is_finite = ReducePart(call, step, {chunk, elements, scale, elements.begin}) && is_finite;
    scale += ShapeOf(elements.count, plan.key.mean_format()).scale_count;
  }
  return is_finite;
}

bool WeightedCompute::ReducePart(const Call& call, const Step& step, const Part& part) {
  const Plan& plan = *call.plan;
  float* const mean = reinterpret_cast<float*>(call.packets + step.mean) + part.first;
  if (plan.key.codec.is_sparse()) {
    AverageSparse(call, step, mean);
  } else {
    Average(call, step, part, mean);
  }
  const bool is_finite = step.packet == kNoPacket
                             ? kernels::cpu::RoundAll(mean, part.elements.count, plan.key.type,
                                                      call.Write(step.region))
                             : Compress(call, step, part, mean);
  const bool has_verdict = plan.key.codec.has_verdict();
  if (!has_verdict && step.packet == kNoPacket) {
    call.compressor->AddNonfiniteBlocks(
        NanBlocks({mean, part.elements.count}, plan.key.codec.block));
  }
  return is_finite || !has_verdict;
}

void WeightedCompute::Average(const Call& call, const Step& step, const Part& part, float* mean) {
  const Plan& plan = *call.plan;
  const PacketShape shape = SourceShape(plan, step);
  const size_t block = plan.key.codec.block;
  const size_t count = part.elements.count;
  const uint8_t* const mask = call.compressor->mask(part.elements.begin);
  const bool has_one_scale = step.chunk == kAllChunks && block == 0;
  float values[kTile];
  for (size_t at = 0, tile = 0; at < count; at += tile) {
    tile = TileAt(at, count, block);
    const size_t scale = has_one_scale ? 0 : part.scale + (block == 0 ? 0 : at / block);
    bool is_first = true;
    for (uint32_t r = 0; r < plan.ranks; ++r) {
      if (weights_[r] == 0) continue;
      DecodeTile(call, shape, call.PieceOf(step, r), scale, part.first + at, tile,
                 mask == nullptr ? nullptr : mask + at / 8, values);
      kernels::cpu::AddWeighted(values, weights_[r], tile, std::exchange(is_first, false),
                                mean + at);
    }
    kernels::cpu::DivideAll(mean + at, weight_sum_, tile, mean + at);
  }
}

// Sparse packets can only be decoded as a whole.
void WeightedCompute::AverageSparse(const Call& call, const Step& step, float* mean) const {
  const Plan& plan = *call.plan;
  const size_t count = step.elements.count;
  float* const values = mean + count;
  kernels::SparseFormat format = plan.key.codec.sparse_format();
  format.codec.is_unbiased = false;  // the factor comes last
  bool is_first = true;
  for (uint32_t r = 0; r < plan.ranks; ++r) {
    if (weights_[r] == 0) continue;
    const void* const packet = call.PieceOf(step, r) + kWeightBytes;
    const kernels::SparseReduceInput in = {.packets = &packet,
                                           .ranks = 1,
                                           .mask = call.compressor->mask(step.elements.begin),
                                           .count = count,
                                           .is_sum = true};
    kernels::cpu::SparseAverage(in, format, SharedDraws(call, step.elements.begin), values);
    kernels::cpu::AddWeighted(values, weights_[r], count, std::exchange(is_first, false), mean);
  }
  kernels::cpu::DivideAll(mean, weight_sum_, count, mean);
  if (!plan.key.codec.sparse.is_unbiased || step.packet != kNoPacket) return;
  for (size_t at = 0; at < count; at += plan.key.codec.block) {
    const size_t length = std::min<size_t>(plan.key.codec.block, count - at);
    kernels::cpu::AddWeighted(mean + at, format.Factor(length), length, /*is_first=*/true,
                              mean + at);
  }
}

bool WeightedCompute::Compress(const Call& call, const Step& step, const Part& part,
                               const float* mean) {
  const Plan& plan = *call.plan;
  const Compressor& compressor = *call.compressor;
  const LowBitChunk chunk = {part.chunk, part.elements, part.scale, part.first};
  const size_t served = ServedElement(plan, chunk);
  const kernels::CompressInput in = {
      .input = mean,
      .input_type = kernels::DataType::kF32,
      .residual_in = compressor.server_in(served),
      .residual_out = compressor.server_out(served),
      .residual_type = compressor.config().residual_type,
      .mask = compressor.mask(part.elements.begin),
      .count = part.elements.count,
      .rule = compressor.config().codec.rule,
      .scale_type = plan.key.type,
  };
  std::byte* const packet = call.Write(step.region);
  if (plan.key.codec.is_sparse()) {
    const kernels::SparseResult result =
        kernels::cpu::SparseCompress(in, /*ef_decay=*/1, plan.key.codec.sparse_format(),
                                     SharedDraws(call, part.elements.begin), packet);
    call.compressor->AddNonfiniteBlocks(result.nonfinite_blocks);
    return result.is_finite;
  }
  if (plan.key.codec.is_low_bit()) {
    const kernels::LowBitResult result =
        kernels::cpu::LowBitCompress(in, plan.key.codec.low_bit_format(), ServerDraws(call, chunk),
                                     LowBitViewOf(packet, step.shape, part.scale, part.first));
    call.compressor->AddNonfiniteBlocks(result.nonfinite_blocks);
    return result.is_finite;
  }
  const PacketView view = ViewOf(packet, step.shape);
  return CompressSigns(in, plan.key.codec.block,
                       {view.scales + part.scale, view.bits + part.first / 8});
}

}  // namespace onebit
