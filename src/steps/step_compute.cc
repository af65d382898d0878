// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/step_compute.h"

#include <cstring>

#include "base/nvtx_range.h"
#include "plan/reduce_op.h"

namespace onebit {
namespace {

using kernels::CompressInput;
using kernels::ReduceInput;
using kernels::TensorSum;

// In a group, one checksum covers the whole message.
void SetChecksum(const Call& call, const Region& region, uint32_t packet,
                 kernels::Checksum* checksums) {
  if (checksums == nullptr) return;
  checksums[packet] = kernels::cpu::ChecksumOf(call.Read(region), region.bytes);
}

// The packet of each chunk, with one scale for the tensor.
PacketShape ChunkShape(const Call& call, uint32_t chunk) {
  return ShapeOf(call.plan->partition.Chunk(chunk).count, call.plan->key.packet_format());
}
Region ChunkPacket(const Call& call, const Step& step, uint32_t chunk) {
  return {Space::kPackets, step.sources + chunk * step.stride, ChunkShape(call, chunk).bytes()};
}

// Packets of values that are not finite carry zeros, because the flag in the header suffices.
void ClearPacket(const Call& call, const Region& region) {
  if (region.bytes != 0) std::memset(call.Write(region), 0, region.bytes);
}

}  // namespace

bool StepCompute::Run(const Call& call, const Step& step, bool is_nonfinite,
                      kernels::Checksum* checksums) {
  const NvtxRange range(NameOf(step.kind));
  if (step.kind == StepKind::kVerdict) {
    kernels::Checksum held;
    if (!is_nonfinite && step.region.bytes != 0) held = HeldChecksum(call, step.chunk);
    WriteVerdict(call, step, held, checksums);
    return !is_nonfinite;
  }
  const bool is_finite = !is_nonfinite && Compute(call, step);
  FinishPackets(call, step, is_finite, checksums);
  return is_finite;
}

bool StepCompute::Compute(const Call& call, const Step& step) {
  if (call.plan->key.is_weighted) {
    if (step.kind == StepKind::kReduce) return weighted_.Reduce(call, step);
    if (IsAbsent(call) && step.kind == StepKind::kCompress) return KeepResidual(call, step);
    if (step.kind == StepKind::kCopy) {  // of the only rank
      call.compressor->set_weight_sum(call.compressor->weight());
      if (IsAbsent(call)) return ClearOutput(call, step);
    }
  }
  if (call.plan->key.codec.is_low_bit() && step.kind != StepKind::kCopy) {
    return low_bit_.Run(call, step);
  }
  if (call.plan->key.codec.is_sparse() && step.kind != StepKind::kCopy) {
    return sparse_.Run(call, step);
  }
  switch (step.kind) {
    case StepKind::kCompress:
      return Compress(call, step);
    case StepKind::kReduce:
      if (call.compressor == nullptr) {
        ReduceDense(call, step);
        return true;
      }
      return step.packet == kNoPacket ? Average(call, step) : Reduce(call, step);
    case StepKind::kDecode:
      return Decode(call, step);
    case StepKind::kCopy:
      return Copy(call, step);
    case StepKind::kVerdict:
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kNative:
    case StepKind::kPack:
    case StepKind::kUnpack:
      break;
  }
  return true;  // the executor handles messages
}

void FinishPackets(const Call& call, const Step& step, bool is_finite,
                   kernels::Checksum* checksums) {
  const bool makes_packets = step.kind == StepKind::kCompress ||
                             (step.kind == StepKind::kReduce && step.packet != kNoPacket);
  if (call.compressor == nullptr || !makes_packets) return;
  const bool is_contribution = step.kind == StepKind::kCompress;
  const bool is_absent = is_contribution && IsAbsent(call);
  const auto finish = [&](Region region, uint32_t packet) {
    // A group sends zeros for the packet of an absent rank, a single call nothing.
    if (!is_finite || (is_absent && checksums == nullptr)) ClearPacket(call, region);
    if (is_contribution && call.plan->key.is_weighted) {
      SetWeight(call.compressor->weight(), call.Write(region));
    }
    if (is_absent) region.bytes = kWeightBytes;
    SetChecksum(call, region, packet, checksums);
  };
  if (step.kind == StepKind::kCompress && step.chunk == kAllChunks && step.stride != 0) {
    for (uint32_t chunk = 0; chunk < call.plan->ranks; ++chunk) {
      finish(ChunkPacket(call, step, chunk), step.packet + chunk);
    }
  } else {
    finish(step.region, step.packet);
  }
}

void WriteVerdict(const Call& call, const Step& step, kernels::Checksum held,
                  kernels::Checksum* checksums) {
  if (step.region.bytes != 0) std::memcpy(call.Write(step.region), &held, sizeof(held));
  SetChecksum(call, step.region, step.packet, checksums);
}

bool StepCompute::Compress(const Call& call, const Step& step) {
  if (step.chunk != kAllChunks || call.plan->key.codec.block != 0) return CompressRuns(call, step);
  return step.stride == 0 ? CompressWhole(call, step) : CompressTensor(call, step);
}

// One scale for the tensor, one packet per chunk: the sum must cover all chunks before any residual
// is known.
bool StepCompute::CompressTensor(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const auto packet_of = [&](uint32_t chunk) { return ChunkPacket(call, step, chunk); };
  TensorSum sum;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    const PacketView packet = ViewOf(call.Write(packet_of(chunk)), ChunkShape(call, chunk));
    kernels::cpu::CompressSigns(InputOf(call, elements), packet.bits, &sum);
  }
  if (!sum.is_finite) return false;
  const float scale = kernels::cpu::ScaleOf(sum, call.compressor->config().codec.rule);
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    if (elements.count == 0) continue;
    *ViewOf(call.Write(packet_of(chunk)), ChunkShape(call, chunk)).scales = scale;
    if (call.compressor->config().codec.kind == CodecKind::kEf) {
      kernels::cpu::CompressResidual(InputOf(call, elements), scale);
    }
  }
  return true;
}

// One scale for the tensor, and one packet.
bool StepCompute::CompressWhole(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  TensorSum sum;
  ForEachRun(plan, step, [&](const PacketRun& run) {
    kernels::cpu::CompressSigns(InputOf(call, run.elements), packet.bits + run.byte, &sum);
  });
  if (!sum.is_finite || step.elements.count == 0) return sum.is_finite;
  packet.scales[0] = kernels::cpu::ScaleOf(sum, call.compressor->config().codec.rule);
  if (call.compressor->config().codec.kind == CodecKind::kEf) {
    ForEachRun(plan, step, [&](const PacketRun& run) {
      kernels::cpu::CompressResidual(InputOf(call, run.elements), packet.scales[0]);
    });
  }
  return true;
}

// Compresses a packet whose runs have scales of their own.
bool StepCompute::CompressRuns(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  bool is_finite = true;
  ForEachRun(plan, step, [&](const PacketRun& run) {
    CompressInput in = InputOf(call, run.elements);
    if (plan.key.is_delta()) in.residual_out = nullptr;  // the estimate changes at decoding
    const PacketView to = {packet.scales + run.scale, packet.bits + run.byte};
    is_finite = CompressSigns(in, plan.key.codec.block, to) && is_finite;
  });
  return is_finite;
}

bool StepCompute::Reduce(const Call& call, const Step& step) {
  bool is_finite = true;
  ForEachRun(*call.plan, step,
             [&](const PacketRun& run) { is_finite = ReduceRun(call, step, run) && is_finite; });
  return is_finite;
}

bool StepCompute::ReduceRun(const Call& call, const Step& step, const PacketRun& run) {
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
  const size_t served = plan.key.is_one_exchange
                            ? elements.begin
                            : elements.begin - plan.partition.Chunk(plan.rank).begin;
  const ReduceInput in = {
      .bits = bits_.data(),
      .scales = scales_.data(),
      .ranks = plan.ranks,
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

void StepCompute::FindPieces(const Call& call, const Step& step, PacketShape shape,
                             size_t scale_offset, size_t bit_offset) {
  const Plan& plan = *call.plan;
  for (uint32_t r = 0; r < plan.ranks; ++r) {
    const PacketView source = ViewOf(call.PieceOf(step, r), shape);
    scales_[r] = source.scales + scale_offset;
    bits_[r] = source.bits + bit_offset;
  }
}

void StepCompute::ReduceDense(const Call& call, const Step& step) {
  if (step.elements.count == 0) return;
  const Plan& plan = *call.plan;
  for (uint32_t r = 0; r < plan.ranks; ++r) {
    pieces_[r] = call.packets + step.sources + r * step.stride;
  }
  pieces_[plan.rank] = call.InputAt(step.elements.begin);
  kernels::cpu::DenseReduce(pieces_.data(), plan.ranks, step.elements.count, plan.key.type,
                            DenseOpOf(call.descriptor.op), call.Write(step.region));
}

bool StepCompute::Decode(const Call& call, const Step& step) {
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

}  // namespace onebit
