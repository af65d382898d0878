// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/sign_ops.h"

namespace onebit {
namespace {

using kernels::CompressInput;
using kernels::ReduceInput;
using kernels::TensorSum;

// Compresses a piece with scales of its own: one for each block, or a single one if `block` is 0.
bool CompressSigns(const CompressInput& in, size_t block, const PacketView& packet) {
  if (block != 0) return kernels::cpu::CompressBlocks(in, block, packet.scales, packet.bits);
  if (in.count == 0) return true;
  TensorSum sum;
  kernels::cpu::CompressSigns(in, packet.bits, &sum);
  if (!sum.is_finite) return false;
  const float scale =
      kernels::cpu::OutputScale(kernels::cpu::ScaleOf(sum, in.rule), 1, false, in.scale_type);
  packet.scales[0] = scale;
  if (!(scale <= 3.40282347e38f)) return false;  // does not fit the output type
  if (in.residual_out != nullptr) kernels::cpu::CompressResidual(in, scale);
  return true;
}

}  // namespace

bool SignOps::Compress(const Call& call, const Step& step) {
  if (step.chunk != kAllChunks || call.plan->key.codec.block != 0) return CompressRuns(call, step);
  return step.stride == 0 ? CompressWhole(call, step) : CompressTensor(call, step);
}

// One scale for the tensor, one packet per chunk: the sum must cover all chunks before any residual
// is known.
bool SignOps::CompressTensor(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const auto packet_of = [&](uint32_t chunk) { return ChunkPacket(call, step, chunk); };
  TensorSum sum;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    const PacketView packet = ViewOf(call.Write(packet_of(chunk)), ChunkShape(call, chunk));
    kernels::cpu::CompressSigns(InputOf(call, step, elements), packet.bits, &sum);
  }
  if (!sum.is_finite) return false;
  const float scale = kernels::cpu::ScaleOf(sum, call.compressor->config().codec.rule);
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    if (elements.count == 0) continue;
    *ViewOf(call.Write(packet_of(chunk)), ChunkShape(call, chunk)).scales = scale;
    if (call.compressor->config().codec.kind == CodecKind::kEf) {
      kernels::cpu::CompressResidual(InputOf(call, step, elements), scale);
    }
  }
  return true;
}

// One scale for the tensor, and one packet.
bool SignOps::CompressWhole(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  TensorSum sum;
  ForEachRun(plan, step, [&](const PacketRun& run) {
    kernels::cpu::CompressSigns(InputOf(call, step, run.elements), packet.bits + run.byte, &sum);
  });
  if (!sum.is_finite || step.elements.count == 0) return sum.is_finite;
  packet.scales[0] = kernels::cpu::ScaleOf(sum, call.compressor->config().codec.rule);
  if (call.compressor->config().codec.kind == CodecKind::kEf) {
    ForEachRun(plan, step, [&](const PacketRun& run) {
      kernels::cpu::CompressResidual(InputOf(call, step, run.elements), packet.scales[0]);
    });
  }
  return true;
}

// Compresses a packet whose runs have scales of their own.
bool SignOps::CompressRuns(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  bool is_finite = true;
  ForEachRun(plan, step, [&](const PacketRun& run) {
    CompressInput in = InputOf(call, step, run.elements);
    if (plan.key.is_delta()) in.residual_out = nullptr;  // the estimate changes at decoding
    const PacketView to = {packet.scales + run.scale, packet.bits + run.byte};
    is_finite = CompressSigns(in, plan.key.codec.block, to) && is_finite;
  });
  return is_finite;
}

bool SignOps::Reduce(const Call& call, const Step& step) {
  bool is_finite = true;
  ForEachRun(*call.plan, step,
             [&](const PacketRun& run) { is_finite = ReduceRun(call, step, run) && is_finite; });
  return is_finite;
}

bool SignOps::ReduceRun(const Call& call, const Step& step, const PacketRun& run) {
  const Plan& plan = *call.plan;
  const Compressor& compressor = *call.compressor;
  const Compressor::Config& config = compressor.config();
  const ElementRange elements = run.elements;
  const PacketView whole = ViewOf(call.Write(step.region), step.shape);
  const PacketView packet = {whole.scales + run.scale, whole.bits + run.byte};
  // A worker has one scale for all chunks if the block is the tensor, a server one for each.
  const bool has_one_scale = step.chunk == kAllChunks && plan.key.codec.block == 0;
  PacketShape source_shape = step.shape;
  if (has_one_scale) source_shape.scale_count = 1;
  FindPieces(call, step, source_shape, has_one_scale ? 0 : run.scale, run.byte);
  const size_t served = elements.begin - plan.served.begin;
  const ReduceInput in = {
      .bits = bits_.data(),
      .scales = scales_.data(),
      .ranks = plan.PiecesOf(step),
      .residual_in = compressor.server_in(served),
      .residual_out = compressor.server_out(served),
      .residual_type = config.residual_type,
      .mask = compressor.mask(elements.begin),
      .count = elements.count,
      .rule = config.codec.rule,
      .output_type = config.type,
      .is_sum = call.descriptor.op == ReduceOp::kSum,
  };
  if (plan.key.codec.block != 0) {
    return kernels::cpu::ReduceBlocks(in, plan.key.codec.block, packet.scales, packet.bits);
  }
  TensorSum sum;
  kernels::cpu::ReduceSigns(in, packet.bits, &sum);
  if (!sum.is_finite) return false;
  const float t = kernels::cpu::OutputScale(kernels::cpu::ScaleOf(sum, in.rule), in.ranks,
                                            in.is_sum, in.output_type);
  packet.scales[0] = t;
  if (!(t <= 3.40282347e38f)) return false;  // does not fit the output type
  if (in.residual_out != nullptr) kernels::cpu::ReduceResidual(in, t);
  return true;
}

void SignOps::FindPieces(const Call& call, const Step& step, PacketShape shape, size_t scale_offset,
                         size_t bit_offset) {
  const Plan& plan = *call.plan;
  for (uint32_t r = 0; r < plan.PiecesOf(step); ++r) {
    const PacketView source = ViewOf(call.PieceOf(step, r), shape);
    scales_[r] = source.scales + scale_offset;
    bits_[r] = source.bits + bit_offset;
  }
}

bool SignOps::Average(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  FindPieces(call, step, step.shape, 0, 0);
  const ReduceInput in = {
      .bits = bits_.data(),
      .scales = scales_.data(),
      .ranks = call.plan->PiecesOf(step),
      .mask = call.compressor->mask(step.elements.begin),
      .count = step.elements.count,
      .output_type = call.plan->key.type,
      .is_sum = call.descriptor.op == ReduceOp::kSum,
  };
  return kernels::cpu::DecodeAverage(in, call.plan->key.codec.block, call.Write(step.region));
}

bool SignOps::AddDelta(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  const size_t begin = step.elements.begin;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  const kernels::DeltaInput in = {
      .bits = packet.bits,
      .scales = packet.scales,
      .held_in = AsFloats(call.compressor->worker_in(begin)),
      .held_out = AsFloats(call.compressor->worker_out(begin)),
      .mask = call.compressor->mask(begin),
      .count = step.elements.count,
      .output_type = call.plan->key.type,
  };
  return kernels::cpu::AddDelta(in, call.plan->key.codec.block, call.OutputAt(begin));
}

bool SignOps::Decode(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  if (plan.key.is_delta()) return AddDelta(call, step);
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  ForEachRun(plan, step, [&](const PacketRun& run) {
    kernels::cpu::Decode(packet.bits + run.byte, packet.scales + run.scale, run.elements.count,
                         plan.key.codec.block, call.MaskOfDecoded(step, run.elements.begin),
                         plan.key.type, call.OutputAt(run.elements.begin));
  });
  return true;
}

void SignOps::DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                       size_t at, size_t count, float* values) const {
  const size_t block = call.plan->key.codec.block;
  const bool has_one_scale = step.chunk == kAllChunks && block == 0;
  const size_t scale = has_one_scale ? 0 : part.scale + (block == 0 ? 0 : at / block);
  const PacketView packet = ViewOf(call.PieceOf(step, rank), SourceShape(call, step));
  kernels::cpu::Decode(packet.bits + (part.packet_element + at) / 8, packet.scales + scale, count,
                       block, MaskAt(call, part, at), kernels::DataType::kF32, values);
}

bool SignOps::CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                           const CompressInput& in) {
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  return CompressSigns(in, call.plan->key.codec.block,
                       {packet.scales + part.scale, packet.bits + part.packet_element / 8});
}

}  // namespace onebit
