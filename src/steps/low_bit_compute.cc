// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/low_bit_compute.h"

#include "steps/low_bit_chunks.h"

namespace onebit {
namespace {

using kernels::LowBitPacket;
using kernels::LowBitPacketView;
using kernels::LowBitResult;

LowBitPacketView ReadOnly(const LowBitPacket& packet) {
  return {packet.scales, packet.minimums, packet.codes};
}

void Merge(const LowBitResult& part, LowBitResult* whole) {
  whole->nonfinite_blocks += part.nonfinite_blocks;
  whole->is_finite = whole->is_finite && part.is_finite;
}

// Adds up what `take` returns for each chunk of a packet.
template <typename Take>
LowBitResult ForEachChunk(const Call& call, const Step& step, const Take& take) {
  LowBitResult all;
  ForEachLowBitChunk(*call.plan, step, [&](const LowBitChunk& part) { Merge(take(part), &all); });
  return all;
}

}  // namespace

bool LowBitCompute::Run(const Call& call, const Step& step) {
  const LowBitResult result = Compute(call, step);
  call.compressor->AddNonfiniteBlocks(result.nonfinite_blocks);
  return result.is_finite || !call.plan->key.codec.has_feedback();
}

LowBitResult LowBitCompute::Compute(const Call& call, const Step& step) {
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

LowBitResult LowBitCompute::Compress(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  ClearPadding(call, step);
  return ForEachChunk(call, step, [&](const LowBitChunk& part) {
    kernels::CompressInput in = InputOf(call, part.elements);
    if (plan.key.is_delta()) in.residual_out = nullptr;  // the estimate changes at decoding
    return kernels::cpu::LowBitCompress(
        in, plan.key.codec.low_bit_format(), WorkerDraws(call, part),
        LowBitViewOf(call.Write(step.region), step.shape, part.scale, part.packet_element));
  });
}

LowBitResult LowBitCompute::Reduce(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const Compressor& compressor = *call.compressor;
  ClearPadding(call, step);
  return ForEachChunk(call, step, [&](const LowBitChunk& part) {
    FindPieces(call, step, part.scale, part.packet_element);
    const size_t served = ServedElement(plan, part);
    const kernels::LowBitReduceInput in = {
        .packets = packets_.data(),
        .ranks = plan.ranks,
        .residual_in = compressor.server_in(served),
        .residual_out = compressor.server_out(served),
        .residual_type = compressor.config().residual_type,
        .mask = compressor.mask(part.elements.begin),
        .count = part.elements.count,
        .output_type = plan.key.type,
        .is_sum = call.descriptor.op == ReduceOp::kSum,
    };
    return kernels::cpu::LowBitReduce(
        in, plan.key.codec.low_bit_format(), ServerDraws(call, part),
        LowBitViewOf(call.Write(step.region), step.shape, part.scale, part.packet_element));
  });
}

LowBitResult LowBitCompute::Average(const Call& call, const Step& step) {
  if (step.elements.count == 0) return {};
  const Plan& plan = *call.plan;
  FindPieces(call, step, 0, 0);
  const kernels::LowBitReduceInput in = {
      .packets = packets_.data(),
      .ranks = plan.ranks,
      .mask = call.compressor->mask(step.elements.begin),
      .count = step.elements.count,
      .output_type = plan.key.type,
      .is_sum = call.descriptor.op == ReduceOp::kSum,
  };
  return kernels::cpu::LowBitAverage(in, plan.key.codec.low_bit_format(), call.Write(step.region));
}

LowBitResult LowBitCompute::Decode(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const kernels::LowBitFormat format = plan.key.codec.low_bit_format();
  const auto decode = [&](const LowBitChunk& part) {
    const ElementRange elements = part.elements;
    const LowBitPacketView packet = ReadOnly(
        LowBitViewOf(call.Write(step.region), step.shape, part.scale, part.packet_element));
    std::byte* const output = call.OutputAt(elements.begin);
    if (plan.key.is_delta()) {
      const kernels::LowBitDeltaInput in = {
          .packet = packet,
          .held_in = AsFloats(call.compressor->worker_in(elements.begin)),
          .held_out = AsFloats(call.compressor->worker_out(elements.begin)),
          .mask = call.compressor->mask(elements.begin),
          .count = elements.count,
          .output_type = plan.key.type,
      };
      return kernels::cpu::LowBitAddDelta(in, format, output);
    }
    return kernels::cpu::LowBitDecode(packet, format, elements.count,
                                      MaskOfDecoded(call, step, part), plan.key.type, output);
  };
  return ForEachChunk(call, step, decode);
}

void LowBitCompute::FindPieces(const Call& call, const Step& step, size_t scale, size_t element) {
  for (uint32_t r = 0; r < call.plan->ranks; ++r) {
    packets_[r] = ReadOnly(LowBitViewOf(call.PieceOf(step, r), step.shape, scale, element));
  }
}

}  // namespace onebit
