// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Steps of collectives whose packets go one way: separately scaled pieces, averages and differences
// written straight to the output, copies, verdicts.
#include <cstring>

#include "steps/step_compute.h"

namespace onebit {
namespace {

using kernels::CompressInput;
using kernels::TensorSum;

// Copies the elements in the mask and writes 0 for the others. Returns true if all copied values
// are finite: others have all bits of `exponent` set.
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

}  // namespace

kernels::Checksum HeldChecksum(const Call& call, uint32_t chunk) {
  const ElementRange elements = call.plan->partition.Chunk(chunk);
  return kernels::cpu::ChecksumOf(call.compressor->worker_out(elements.begin),
                                  elements.count * sizeof(float));
}

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

bool StepCompute::Average(const Call& call, const Step& step) {
  if (step.elements.count == 0) return true;
  FindPieces(call, step, step.shape, 0, 0);
  const kernels::ReduceInput in = {
      .bits = bits_.data(),
      .scales = scales_.data(),
      .ranks = call.plan->ranks,
      .mask = call.compressor->mask(step.elements.begin),
      .count = step.elements.count,
      .output_type = call.plan->key.type,
      .is_sum = call.descriptor.op == ReduceOp::kSum,
  };
  return kernels::cpu::DecodeAverage(in, call.plan->key.codec.block, call.Write(step.region));
}

bool StepCompute::AddDelta(const Call& call, const Step& step) {
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

// Compressed calls inspect what they copy, because the mask and the rule for values that are not
// finite apply to it as well.
bool StepCompute::Copy(const Call& call, const Step& step) {
  const kernels::DataType type = call.plan->key.type;
  const size_t count = step.elements.count;
  if (count == 0) return true;
  const std::byte* from = call.Read(step.region);
  std::byte* to = call.OutputAt(step.elements.begin);
  if (call.compressor == nullptr) {
    if (to != from) std::memcpy(to, from, count * kernels::BytesOf(type));
    return true;
  }
  const uint8_t* mask = call.compressor->mask(step.elements.begin);
  bool is_finite = false;
  switch (type) {
    case kernels::DataType::kF32:
      is_finite = CopyWords<uint32_t>(from, to, mask, count, 0x7f80'0000u);
      break;
    case kernels::DataType::kF16:
      is_finite = CopyWords<uint16_t>(from, to, mask, count, 0x7c00u);
      break;
    case kernels::DataType::kBf16:
      is_finite = CopyWords<uint16_t>(from, to, mask, count, 0x7f80u);
      break;
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return is_finite || !call.plan->key.codec.has_verdict();
}

}  // namespace onebit
