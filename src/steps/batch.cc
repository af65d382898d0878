// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/batch.h"

namespace onebit {

StepInput InputFrom(const Call& call, const Step& step, size_t element) {
  if (step.mean == kNoOffset) return {call.InputAt(element), call.plan->key.type};
  const size_t offset = (element - step.elements.begin) * sizeof(float);
  return {call.packets + step.mean + offset, kernels::DataType::kF32};
}

kernels::CompressInput InputOf(const Call& call, const Step& step, ElementRange elements) {
  const Compressor& compressor = *call.compressor;
  const Compressor::Config& config = compressor.config();
  const StepInput input = InputFrom(call, step, elements.begin);
  return {
      .input = input.data,
      .input_type = input.type,
      .residual_in = compressor.worker_in(elements.begin),
      .residual_out = compressor.worker_out(elements.begin),
      .residual_type = config.residual_type,
      .mask = compressor.mask(elements.begin),
      .count = elements.count,
      .rule = config.codec.rule,
      .scale_type = call.plan->scale_type,
  };
}

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

const uint8_t* Call::MaskOfDecoded(const Step& step, size_t element) const {
  if (plan->key.collective == Collective::kAllToAll) {
    element += plan->partition.Chunk(plan->rank).begin - plan->partition.Chunk(step.chunk).begin;
  }
  return compressor->mask(element);
}

}  // namespace onebit
