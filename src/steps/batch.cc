// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/batch.h"

namespace onebit {

kernels::CompressInput InputOf(const Call& call, const Step& step, ElementRange elements) {
  const Compressor& compressor = *call.compressor;
  const Compressor::Config& config = compressor.config();
  const bool is_mean = step.mean != kNoOffset;
  const size_t mean_offset = (elements.begin - step.elements.begin) * sizeof(float);
  return {
      .input = is_mean ? call.packets + step.mean + mean_offset : call.InputAt(elements.begin),
      .input_type = is_mean ? kernels::DataType::kF32 : config.type,
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
