// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parts of low-bit packets that the steps of a call work on, and their random numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/low_bit.h"
#include "steps/batch.h"

namespace onebit {

// A chunk in a packet.
struct LowBitChunk {
  uint32_t chunk = 0;
  ElementRange elements;      // of the tensor
  size_t scale = 0;           // in the packet, that of the first block
  size_t packet_element = 0;  // in the packet, the first one
};

// Calls take(LowBitChunk) for the chunks of a step's packet that are not empty: a single one, or
// all of the tensor, where elements of a packet are those of the tensor.
template <typename Take>
void ForEachLowBitChunk(const Plan& plan, const Step& step, const Take& take) {
  if (step.chunk != kAllChunks) {
    if (step.elements.count != 0) take(LowBitChunk{step.chunk, step.elements});
    return;
  }
  size_t scale = 0;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    if (elements.count != 0) take(LowBitChunk{chunk, elements, scale, elements.begin});
    scale += kernels::BlockCount(elements.count, plan.key.codec.block);
  }
}

// Bytes between scales and codes would otherwise be those of a former call.
inline void ClearPadding(const Call& call, const Step& step) {
  const size_t used = step.shape.used_scale_bytes();
  const size_t padding = step.shape.scale_bytes() - used;
  std::byte* const scales = call.Write(step.region) + step.shape.weight_bytes();
  if (padding != 0) std::memset(scales + used, 0, padding);
}

// The element of the server residual that belongs to the first one of a chunk.
inline size_t ServedElement(const Plan& plan, const LowBitChunk& part) {
  if (plan.key.is_one_exchange) return part.elements.begin;
  return part.elements.begin - plan.partition.Chunk(plan.rank).begin;
}

// The draws of this rank as a worker, and as the server of a chunk: they differ.
inline kernels::Draws DrawsOf(const Call& call, const LowBitChunk& part, uint32_t stream) {
  const Compressor& compressor = *call.compressor;
  return {.seed = compressor.config().seed,
          .first = part.elements.begin,
          .epoch = static_cast<uint32_t>(compressor.epoch()),
          .tensor = compressor.config().tensor_id,
          .stream = stream};
}
inline kernels::Draws WorkerDraws(const Call& call, const LowBitChunk& part) {
  return DrawsOf(call, part, call.plan->rank);
}
inline kernels::Draws ServerDraws(const Call& call, const LowBitChunk& part) {
  constexpr uint32_t kServerStream = 65'536;
  return DrawsOf(call, part, kServerStream + part.chunk);
}

// Mask of the elements that a decode step writes.
inline const uint8_t* MaskOfDecoded(const Call& call, const Step& step, const LowBitChunk& part) {
  return call.MaskOfDecoded(step, part.elements.begin);
}

}  // namespace onebit
