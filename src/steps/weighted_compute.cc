// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/weighted_compute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/weighted.h"
#include "plan/runs.h"

namespace onebit {
namespace {

size_t NanBlocks(std::span<const float> values, size_t block) {
  size_t blocks = 0;
  for (size_t at = 0; at < values.size(); at += block) {
    const auto one = values.subspan(at, std::min(block, values.size() - at));
    if (std::ranges::any_of(one, [](float value) { return std::isnan(value); })) ++blocks;
  }
  return blocks;
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

bool ClearOutput(const Call& call, const Step& step) {
  const size_t bytes = step.elements.count * kernels::BytesOf(call.plan->key.type);
  if (bytes != 0) std::memset(call.OutputAt(step.elements.begin), 0, bytes);
  return true;
}

void WeightedCompute::SumHost(const Call& call, const Step& step) {
  float* const weights = reinterpret_cast<float*>(call.packets + step.own_source);
  weights[step.own_piece] = call.compressor->weight();
  uint32_t present = 0;
  for (uint32_t r = 0; r < step.pieces; ++r) {
    if (weights[r] == 0) continue;
    weights_[present] = weights[r];
    pieces_[present++] = r == step.own_piece ? call.InputAt(step.elements.begin)
                                             : call.packets + step.sources + r * step.stride;
  }
  const float sum = kernels::cpu::SumOf(weights_.data(), present);
  weights[step.pieces] = sum;
  if (present == 0 || step.elements.count == 0) return;
  auto* const mean = reinterpret_cast<float*>(call.Write(step.region));
  kernels::cpu::DenseReduce(pieces_.data(), present, step.elements.count, call.plan->key.type,
                            kernels::DenseOp::kSum, mean,
                            {.factors = weights_.data(), .is_output_f32 = true});
  kernels::cpu::DivideAll(mean, sum, step.elements.count, mean);
}

bool WeightedCompute::Reduce(const Call& call, const Step& step, CodecOps* ops) {
  if (!FindWeights(call, step)) {  // residuals stay as they are
    ops->WriteZeros(call, step);
    return true;
  }
  bool is_finite = true;
  const auto reduce = [&](const PacketPart& part) {
    is_finite = ReducePart(call, step, part, ops) && is_finite;
  };
  if (call.plan->key.cuts == nullptr) {
    ForEachPart(*call.plan, step, reduce);
  } else {
    ForEachRun(*call.plan, step, [&](const PacketRun& run) {
      reduce({step.chunk, run.elements, run.scale, 8 * run.byte});
    });
  }
  return is_finite;
}

bool WeightedCompute::FindWeights(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const uint32_t pieces = plan.PiecesOf(step);
  if (!plan.key.is_weighted) {
    // A packet has the mean of its host.
    const float ranks_per_host = static_cast<float>(plan.ranks) / static_cast<float>(plan.hosts);
    for (uint32_t host = 0; host < pieces; ++host) {
      weights_[host] = plan.host_sizes.empty() ? ranks_per_host : plan.host_sizes[host];
    }
    divisor_ = call.descriptor.op == ReduceOp::kSum ? 1 : static_cast<float>(plan.ranks);
    return true;
  }
  for (uint32_t r = 0; r < pieces; ++r) weights_[r] = WeightOf(call.PieceOf(step, r));
  divisor_ = kernels::cpu::SumOf(weights_.data(), pieces);
  call.compressor->set_weight_sum(divisor_);
  return divisor_ != 0;
}

bool WeightedCompute::ReducePart(const Call& call, const Step& step, const PacketPart& part,
                                 CodecOps* ops) {
  const Plan& plan = *call.plan;
  const size_t count = part.elements.count;
  float* const mean = reinterpret_cast<float*>(call.packets + step.mean) +
                      (part.elements.begin - step.elements.begin);
  Average(call, step, part, *ops, mean);
  if (step.packet != kNoPacket) return Compress(call, step, part, mean, ops);
  ops->ScaleMean(call, count, mean);
  const bool is_finite =
      kernels::cpu::RoundAll(mean, count, plan.key.type, call.Write(step.region));
  if (plan.key.codec.has_verdict()) return is_finite;
  call.compressor->AddNonfiniteBlocks(NanBlocks({mean, count}, plan.key.codec.block));
  return true;
}

void WeightedCompute::Average(const Call& call, const Step& step, const PacketPart& part,
                              const CodecOps& ops, float* mean) const {
  const size_t count = part.elements.count;
  float tile_values[CodecOps::kTile];
  for (size_t at = 0, tile = 0; at < count; at += tile) {
    tile = ops.TileAt(call, part, at);
    // A packet that is decoded as a whole has room behind the mean.
    float* const values = tile > CodecOps::kTile ? mean + count : tile_values;
    bool is_first = true;
    for (uint32_t r = 0; r < call.plan->PiecesOf(step); ++r) {
      if (weights_[r] == 0) continue;
      ops.DecodeTo(call, step, r, part, at, tile, values);
      kernels::cpu::AddWeighted(values, weights_[r], tile, std::exchange(is_first, false),
                                mean + at);
    }
    kernels::cpu::DivideAll(mean + at, divisor_, tile, mean + at);
  }
}

bool WeightedCompute::Compress(const Call& call, const Step& step, const PacketPart& part,
                               const float* mean, CodecOps* ops) {
  const Compressor& compressor = *call.compressor;
  const size_t served = ServedElement(*call.plan, part);
  return ops->CompressFrom(call, step, part,
                           {
                               .input = mean,
                               .input_type = kernels::DataType::kF32,
                               .residual_in = compressor.server_in(served),
                               .residual_out = compressor.server_out(served),
                               .residual_type = compressor.config().residual_type,
                               .mask = compressor.mask(part.elements.begin),
                               .count = part.elements.count,
                               .rule = compressor.config().codec.rule,
                               .scale_type = call.plan->key.type,
                           });
}

}  // namespace onebit
