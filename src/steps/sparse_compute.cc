// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/sparse_compute.h"

namespace onebit {
namespace {

using kernels::SparseReduceInput;
using kernels::SparseResult;

kernels::Draws DrawsOf(const Call& call, const Step& step) {
  return SharedDraws(call, step.elements.begin);
}

kernels::SparseFormat FormatOf(const Call& call) { return call.plan->key.codec.sparse_format(); }

}  // namespace

bool SparseCompute::Run(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  const SparseResult result = Compute(call, step);
  call.compressor->AddNonfiniteBlocks(result.nonfinite_blocks);
  return result.is_finite || !call.plan->key.codec.has_feedback();
}

SparseResult SparseCompute::Compute(const Call& call, const Step& step) {
  switch (step.kind) {
    case StepKind::kCompress:
      return Compress(call, step);
    case StepKind::kReduce:
      return step.packet == kNoPacket ? Average(call, step) : Reduce(call, step);
    case StepKind::kDecode:
      return Decode(call, step);
    case StepKind::kCopy:
    case StepKind::kVerdict:
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kNative:
    case StepKind::kPack:
    case StepKind::kUnpack:
      break;
  }
  return {};  // steps whose work does not depend on the codec
}

SparseResult SparseCompute::Compress(const Call& call, const Step& step) const {
  return kernels::cpu::SparseCompress(
      InputOf(call, step.elements), call.compressor->config().ef_decay, FormatOf(call),
      DrawsOf(call, step), call.Write(step.region) + step.shape.weight_bytes());
}

SparseReduceInput SparseCompute::PacketsOf(const Call& call, const Step& step) {
  for (uint32_t r = 0; r < call.plan->ranks; ++r) packets_[r] = call.PieceOf(step, r);
  return {.packets = packets_.data(),
          .ranks = call.plan->ranks,
          .residual_type = call.compressor->config().residual_type,
          .mask = call.compressor->mask(step.elements.begin),
          .count = step.elements.count,
          .output_type = call.plan->key.type,
          .is_sum = call.descriptor.op == ReduceOp::kSum};
}

SparseResult SparseCompute::Reduce(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const size_t served = step.elements.begin - plan.partition.Chunk(plan.rank).begin;
  SparseReduceInput in = PacketsOf(call, step);
  in.residual_in = call.compressor->server_in(served);
  in.residual_out = call.compressor->server_out(served);
  return kernels::cpu::SparseReduce(in, FormatOf(call), DrawsOf(call, step),
                                    call.Write(step.region));
}

SparseResult SparseCompute::Average(const Call& call, const Step& step) {
  return kernels::cpu::SparseAverage(PacketsOf(call, step), FormatOf(call), DrawsOf(call, step),
                                     call.Write(step.region));
}

SparseResult SparseCompute::Decode(const Call& call, const Step& step) const {
  const void* const packet = call.Read(step.region);
  return kernels::cpu::SparseAverage({.packets = &packet,
                                      .ranks = 1,
                                      .mask = call.MaskOfDecoded(step, step.elements.begin),
                                      .count = step.elements.count,
                                      .output_type = call.plan->key.type,
                                      .is_sum = true},
                                     FormatOf(call), DrawsOf(call, step),
                                     call.OutputAt(step.elements.begin));
}

}  // namespace onebit
