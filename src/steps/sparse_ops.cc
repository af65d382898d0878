// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/sparse_ops.h"

#include <algorithm>
#include <cstring>

#include "kernels/weighted.h"

namespace onebit {
namespace {

using kernels::SparseReduceInput;

kernels::Draws DrawsOf(const Call& call, const Step& step) {
  return SharedDraws(call, step.elements.begin);
}

kernels::SparseFormat FormatOf(const Call& call) { return call.plan->key.codec.sparse_format(); }

}  // namespace

bool SparseOps::Compress(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  return Judge(call, kernels::cpu::SparseCompress(
                         InputOf(call, step, step.elements), call.compressor->config().ef_decay,
                         FormatOf(call), DrawsOf(call, step),
                         call.Write(step.region) + step.shape.weight_bytes()));
}

SparseReduceInput SparseOps::PacketsOf(const Call& call, const Step& step) {
  for (uint32_t r = 0; r < call.plan->PiecesOf(step); ++r) packets_[r] = call.PieceOf(step, r);
  return {.packets = packets_.data(),
          .ranks = call.plan->PiecesOf(step),
          .residual_type = call.compressor->config().residual_type,
          .mask = call.compressor->mask(step.elements.begin),
          .count = step.elements.count,
          .output_type = call.plan->key.type,
          .is_sum = call.descriptor.op == ReduceOp::kSum};
}

bool SparseOps::Reduce(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  const Plan& plan = *call.plan;
  const size_t served = step.elements.begin - plan.served.begin;
  SparseReduceInput in = PacketsOf(call, step);
  in.residual_in = call.compressor->server_in(served);
  in.residual_out = call.compressor->server_out(served);
  return Judge(call, kernels::cpu::SparseReduce(in, FormatOf(call), DrawsOf(call, step),
                                                call.Write(step.region)));
}

bool SparseOps::Average(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  return Judge(call, kernels::cpu::SparseAverage(PacketsOf(call, step), FormatOf(call),
                                                 DrawsOf(call, step), call.Write(step.region)));
}

bool SparseOps::Decode(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  const void* const packet = call.Read(step.region) + step.shape.weight_bytes();
  return Judge(call, kernels::cpu::SparseAverage(
                         {.packets = &packet,
                          .ranks = 1,
                          .mask = call.MaskOfDecoded(step, step.elements.begin),
                          .count = step.elements.count,
                          .output_type = call.plan->key.type,
                          .is_sum = true},
                         FormatOf(call), DrawsOf(call, step), call.OutputAt(step.elements.begin)));
}

// A packet can only be decoded as a whole.
size_t SparseOps::TileAt(const Call&, const PacketPart& part, size_t at) const {
  return part.elements.count - at;
}

void SparseOps::DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                         size_t /*at*/, size_t count, float* values) const {
  kernels::SparseFormat format = FormatOf(call);
  format.codec.is_unbiased = false;  // the factor comes last
  const void* const packet = call.PieceOf(step, rank) + SourceShape(call, step).weight_bytes();
  kernels::cpu::SparseAverage({.packets = &packet,
                               .ranks = 1,
                               .mask = MaskAt(call, part, 0),
                               .count = count,
                               .is_sum = true},
                              format, SharedDraws(call, part.elements.begin), values);
}

bool SparseOps::CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                             const kernels::CompressInput& in) {
  return Judge(call, kernels::cpu::SparseCompress(
                         in, /*ef_decay=*/1, FormatOf(call), SharedDraws(call, part.elements.begin),
                         call.Write(step.region) + step.shape.weight_bytes()));
}

void SparseOps::ScaleMean(const Call& call, size_t count, float* mean) const {
  const kernels::SparseFormat format = FormatOf(call);
  if (!format.codec.is_unbiased) return;
  for (size_t at = 0; at < count; at += format.block) {
    const size_t length = std::min(format.block, count - at);
    kernels::cpu::AddWeighted(mean + at, format.Factor(length), length, /*is_first=*/true,
                              mean + at);
  }
}

// A packet of zeros has indices all the same.
void SparseOps::WriteZeros(const Call& call, const Step& step) const {
  if (step.packet == kNoPacket || step.region.bytes == 0) {
    CodecOps::WriteZeros(call, step);
    return;
  }
  std::byte* const zeros = call.packets + step.mean;
  std::memset(zeros, 0, step.elements.count * sizeof(float));
  kernels::cpu::SparseCompress({.input = zeros, .count = step.elements.count}, /*ef_decay=*/1,
                               FormatOf(call), DrawsOf(call, step), call.Write(step.region));
}

}  // namespace onebit
