// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/element_code_ops.h"

namespace onebit {
namespace {

using kernels::LowBitPacket;
using kernels::LowBitPacketView;
using kernels::LowBitResult;

LowBitPacketView ReadOnly(const LowBitPacket& packet) {
  return {packet.scales, packet.minimums, packet.codes};
}

// The packet of a step, from a part on.
LowBitPacket Written(const Call& call, const Step& step, const PacketPart& part) {
  return LowBitViewOf(call.Write(step.region), step.shape, part.scale, part.packet_element);
}

void Merge(const LowBitResult& part, LowBitResult* whole) {
  whole->nonfinite_blocks += part.nonfinite_blocks;
  whole->is_finite = whole->is_finite && part.is_finite;
}

// Adds up what `take` returns for each part of a packet.
template <typename Take>
LowBitResult OverParts(const Call& call, const Step& step, const Take& take) {
  LowBitResult all;
  ForEachPart(*call.plan, step, [&](const PacketPart& part) { Merge(take(part), &all); });
  return all;
}

}  // namespace

bool ElementCodeOps::Compress(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  ClearPadding(call, step);
  return Judge(call, OverParts(call, step, [&](const PacketPart& part) {
                 kernels::CompressInput in = InputOf(call, step, part.elements);
                 if (plan.key.is_delta())
                   in.residual_out = nullptr;  // the estimate changes at decoding
                 return EncodeInput(in, plan.key.codec, WorkerDraws(call, part),
                                    Written(call, step, part));
               }));
}

bool ElementCodeOps::Reduce(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const Compressor& compressor = *call.compressor;
  ClearPadding(call, step);
  return Judge(call, OverParts(call, step, [&](const PacketPart& part) {
                 FindPieces(call, step, part.scale, part.packet_element);
                 const size_t served = ServedElement(plan, part);
                 const kernels::LowBitReduceInput in = {
                     .packets = packets_.data(),
                     .ranks = plan.PiecesOf(step),
                     .residual_in = compressor.server_in(served),
                     .residual_out = compressor.server_out(served),
                     .residual_type = compressor.config().residual_type,
                     .mask = compressor.mask(part.elements.begin),
                     .count = part.elements.count,
                     .output_type = plan.key.type,
                     .is_sum = call.descriptor.op == ReduceOp::kSum,
                 };
                 return EncodeSum(in, plan.key.codec, ServerDraws(call, part),
                                  Written(call, step, part));
               }));
}

bool ElementCodeOps::Average(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  const Plan& plan = *call.plan;
  FindPieces(call, step, 0, 0);
  const kernels::LowBitReduceInput in = {
      .packets = packets_.data(),
      .ranks = plan.PiecesOf(step),
      .mask = call.compressor->mask(step.elements.begin),
      .count = step.elements.count,
      .output_type = plan.key.type,
      .is_sum = call.descriptor.op == ReduceOp::kSum,
  };
  return Judge(call, DecodeSum(in, plan.key.codec, call.Write(step.region)));
}

bool ElementCodeOps::Decode(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const Codec& codec = plan.key.codec;
  const auto decode = [&](const PacketPart& part) {
    const ElementRange elements = part.elements;
    const LowBitPacketView packet = ReadOnly(Written(call, step, part));
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
      return DecodeDelta(in, codec, output);
    }
    return DecodeOne(packet, codec, elements.count, call.MaskOfDecoded(step, elements.begin),
                     plan.key.type, output);
  };
  return Judge(call, OverParts(call, step, decode));
}

void ElementCodeOps::DecodeTo(const Call& call, const Step& step, uint32_t rank,
                              const PacketPart& part, size_t at, size_t count,
                              float* values) const {
  const Codec& codec = call.plan->key.codec;
  const LowBitPacketView packet =
      ReadOnly(LowBitViewOf(call.PieceOf(step, rank), SourceShape(call, step),
                            part.scale + at / codec.block, part.packet_element + at));
  DecodeOne(packet, codec, count, MaskAt(call, part, at), kernels::DataType::kF32, values);
}

bool ElementCodeOps::CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                                  const kernels::CompressInput& in) {
  ClearPadding(call, step);
  return Judge(call, EncodeInput(in, call.plan->key.codec, ServerDraws(call, part),
                                 Written(call, step, part)));
}

ElementCodeOps::Result ElementCodeOps::DecodeOne(const LowBitPacketView& packet, const Codec& codec,
                                                 size_t count, const uint8_t* mask,
                                                 kernels::DataType type, void* output) const {
  return DecodeSum({.packets = &packet,
                    .ranks = 1,
                    .mask = mask,
                    .count = count,
                    .output_type = type,
                    .is_sum = true},
                   codec, output);
}

void ElementCodeOps::FindPieces(const Call& call, const Step& step, size_t scale, size_t element) {
  for (uint32_t r = 0; r < call.plan->PiecesOf(step); ++r) {
    packets_[r] = ReadOnly(LowBitViewOf(call.PieceOf(step, r), step.shape, scale, element));
  }
}

}  // namespace onebit
