// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/step_compute.h"

#include <cstring>

namespace onebit {
namespace {

using kernels::CompressInput;
using kernels::ReduceInput;
using kernels::TensorSum;

CompressInput InputOf(const Call& call, ElementRange elements) {
  const Compressor& compressor = *call.compressor;
  const Compressor::Config& config = compressor.config();
  return {
      .input = call.input + elements.begin * kernels::BytesOf(config.type),
      .input_type = config.type,
      .residual_in = compressor.worker_in(elements.begin),
      .residual_out = compressor.worker_out(elements.begin),
      .residual_type = config.residual_type,
      .mask = compressor.mask(elements.begin),
      .count = elements.count,
      .rule = config.rule,
  };
}

kernels::Checksum ChecksumOf(const Call& call, const Region& region) {
  return kernels::cpu::ChecksumOf(call.Read(region), region.bytes);
}

// Packets of values that are not finite carry zeros: the flag in the header says the rest.
void ClearPacket(const Call& call, const Region& region) {
  if (region.bytes != 0) std::memset(call.Write(region), 0, region.bytes);
}

// Copies the elements in the mask and writes 0 for the others. Whether all copied are finite: those
// that are not have all bits of `exponent` set.
template <typename Word>
bool CopyWords(const std::byte* input, std::byte* output, const uint8_t* mask, size_t count,
               Word exponent) {
  bool is_finite = true;
  for (size_t i = 0; i < count; ++i) {
    Word word = 0;
    if (mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0) {
      std::memcpy(&word, input + i * sizeof(Word), sizeof(Word));
    }
    is_finite = is_finite && (word & exponent) != exponent;
    std::memcpy(output + i * sizeof(Word), &word, sizeof(Word));
  }
  return is_finite;
}

// The compressed call of one rank: nothing is sent, so nothing is lost, but the mask and the rule
// for non-finite values hold as for many ranks.
bool CopyChecked(const Call& call, size_t count) {
  const uint8_t* mask = call.compressor->mask(0);
  switch (call.plan->key.type) {
    case kernels::DataType::kF32:
      return CopyWords<uint32_t>(call.input, call.output, mask, count, 0x7f80'0000u);
    case kernels::DataType::kF16:
      return CopyWords<uint16_t>(call.input, call.output, mask, count, 0x7c00u);
    case kernels::DataType::kBf16:
      return CopyWords<uint16_t>(call.input, call.output, mask, count, 0x7f80u);
  }
  return false;
}

}  // namespace

const std::byte* Call::Read(const Region& region) const {
  switch (region.space) {
    case Space::kNone:
      return nullptr;
    case Space::kInput:
      return input + region.offset;
    case Space::kOutput:
      return output + region.offset;
    case Space::kPackets:
      return packets + region.offset;
  }
  return nullptr;
}

std::byte* Call::Write(const Region& region) const {
  return region.space == Space::kInput ? nullptr : const_cast<std::byte*>(Read(region));
}

bool StepCompute::Run(const Call& call, const Step& step, bool is_nonfinite,
                      kernels::Checksum* checksums) {
  switch (step.kind) {
    case StepKind::kCompress: {
      return Compress(call, step, checksums);
    }
    case StepKind::kReduce: {
      if (call.compressor == nullptr) {
        ReduceDense(call, step);
        return true;
      }
      const bool is_finite = !is_nonfinite && Reduce(call, step);
      if (!is_finite) ClearPacket(call, step.region);
      checksums[step.packet] = ChecksumOf(call, step.region);
      return is_finite;
    }
    case StepKind::kDecode:
      if (!is_nonfinite) Decode(call, step);
      return !is_nonfinite;
    case StepKind::kCopy:
      if (call.compressor != nullptr) return CopyChecked(call, step.elements.count);
      if (call.output != call.input && step.elements.count != 0) {
        std::memcpy(call.output, call.input,
                    step.elements.count * kernels::BytesOf(call.plan->key.type));
      }
      return true;
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kNative:
    case StepKind::kPack:
    case StepKind::kUnpack:
      break;
  }
  return true;  // messages are the executor's
}

bool StepCompute::Compress(const Call& call, const Step& step, kernels::Checksum* checksums) {
  const uint32_t block = call.plan->key.block;
  if (step.chunk == kAllChunks && step.stride != 0) return CompressTensor(call, step, checksums);
  bool is_finite;
  if (step.chunk == kAllChunks) {
    is_finite = CompressWhole(call, step);
  } else {
    const PacketView packet = ViewOf(call.Write(step.region), step.shape);
    is_finite = kernels::cpu::CompressBlocks(InputOf(call, step.elements), block, packet.scales,
                                             packet.bits);
  }
  if (!is_finite) ClearPacket(call, step.region);
  checksums[step.packet] = ChecksumOf(call, step.region);
  return is_finite;
}

// One scale for the tensor, one packet per chunk: the sum runs over all chunks before any residual
// can be formed.
bool StepCompute::CompressTensor(const Call& call, const Step& step, kernels::Checksum* checksums) {
  const Plan& plan = *call.plan;
  const auto packet_of = [&](uint32_t chunk) {
    const size_t count = plan.partition.Chunk(chunk).count;
    return Region{Space::kPackets, step.sources + chunk * step.stride, ShapeOf(count, 0).bytes()};
  };
  TensorSum sum;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    const PacketView packet = ViewOf(call.Write(packet_of(chunk)), ShapeOf(elements.count, 0));
    kernels::cpu::CompressSigns(InputOf(call, elements), packet.bits, &sum);
  }
  const float scale =
      sum.is_finite ? kernels::cpu::ScaleOf(sum, call.compressor->config().rule) : 0;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    const Region region = packet_of(chunk);
    if (!sum.is_finite) {
      ClearPacket(call, region);
    } else if (elements.count != 0) {
      *ViewOf(call.Write(region), ShapeOf(elements.count, 0)).scales = scale;
      if (call.compressor->config().kind == CodecKind::kEf) {
        kernels::cpu::CompressResidual(InputOf(call, elements), scale);
      }
    }
    checksums[step.packet + chunk] = ChecksumOf(call, region);
  }
  return sum.is_finite;
}

// All chunks into one packet: the scales of chunk 0, 1, ..., then the bits of the tensor.
bool StepCompute::CompressWhole(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  TensorSum sum;
  size_t scale = 0;
  bool is_finite = true;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    uint8_t* bits = packet.bits + elements.begin / 8;
    if (elements.count == 0) continue;
    if (plan.key.block == 0) {
      kernels::cpu::CompressSigns(InputOf(call, elements), bits, &sum);
      is_finite = is_finite && sum.is_finite;
    } else {
      is_finite = kernels::cpu::CompressBlocks(InputOf(call, elements), plan.key.block,
                                               packet.scales + scale, bits) &&
                  is_finite;
      scale += kernels::BlockCount(elements.count, plan.key.block);
    }
  }
  if (plan.key.block != 0 || !is_finite || step.elements.count == 0) return is_finite;
  packet.scales[0] = kernels::cpu::ScaleOf(sum, call.compressor->config().rule);
  if (call.compressor->config().kind == CodecKind::kEf) {
    for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
      kernels::cpu::CompressResidual(InputOf(call, plan.partition.Chunk(chunk)), packet.scales[0]);
    }
  }
  return true;
}

bool StepCompute::Reduce(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  if (step.chunk != kAllChunks) return ReduceChunk(call, step, step.elements, 0, 0, packet);
  bool is_finite = true;
  size_t scale = 0;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    const PacketView piece{packet.scales + scale, packet.bits + elements.begin / 8};
    const size_t worker_scale = plan.key.block == 0 ? 0 : scale;
    is_finite =
        ReduceChunk(call, step, elements, worker_scale, elements.begin / 8, piece) && is_finite;
    scale += ShapeOf(elements.count, plan.key.block).scale_count;
  }
  return is_finite;
}

// Averages `elements`, which begin at scale_offset scales and bit_offset bytes of bits in the
// packet of every rank.
bool StepCompute::ReduceChunk(const Call& call, const Step& step, ElementRange elements,
                              size_t scale_offset, size_t bit_offset, PacketView packet) {
  if (elements.count == 0) return true;
  const Plan& plan = *call.plan;
  const Compressor& compressor = *call.compressor;
  const Compressor::Config& config = compressor.config();
  PacketShape source_shape = step.shape;
  if (step.chunk == kAllChunks && plan.key.block == 0) source_shape.scale_count = 1;
  for (uint32_t r = 0; r < plan.ranks; ++r) {
    const size_t offset = r == plan.rank ? step.own_source : step.sources + r * step.stride;
    const PacketView source = ViewOf(call.packets + offset, source_shape);
    scales_[r] = source.scales + scale_offset;
    bits_[r] = source.bits + bit_offset;
  }
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
      .rule = config.rule,
      .output_type = config.type,
      .is_sum = call.descriptor.op == ReduceOp::kSum,
  };
  if (plan.key.block != 0) {
    return kernels::cpu::ReduceBlocks(in, plan.key.block, packet.scales, packet.bits);
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

void StepCompute::ReduceDense(const Call& call, const Step& step) {
  if (step.elements.count == 0) return;
  const Plan& plan = *call.plan;
  for (uint32_t r = 0; r < plan.ranks; ++r) {
    pieces_[r] = call.packets + step.sources + r * step.stride;
  }
  pieces_[plan.rank] = call.Read(DenseRegion(Space::kInput, step.elements, plan.key.type));
  kernels::cpu::DenseReduce(pieces_.data(), plan.ranks, step.elements.count, plan.key.type,
                            call.descriptor.op == ReduceOp::kAvg, call.Write(step.region));
}

void StepCompute::Decode(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  const PacketView packet = ViewOf(call.Write(step.region), step.shape);
  const auto decode = [&](ElementRange elements, const float* scales, const uint8_t* bits) {
    if (elements.count == 0) return;
    kernels::cpu::Decode(bits, scales, elements.count, plan.key.block,
                         call.compressor->mask(elements.begin), plan.key.type,
                         call.output + elements.begin * kernels::BytesOf(plan.key.type));
  };
  if (step.chunk != kAllChunks) {
    decode(step.elements, packet.scales, packet.bits);
    return;
  }
  size_t scale = 0;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    decode(elements, packet.scales + scale, packet.bits + elements.begin / 8);
    scale += ShapeOf(elements.count, plan.key.block).scale_count;
  }
}

}  // namespace onebit
