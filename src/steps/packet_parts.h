// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parts of packets that the steps of a call work on, and their random numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/low_bit.h"
#include "steps/batch.h"

namespace onebit {

// A chunk in a packet.
struct PacketPart {
  uint32_t chunk = 0;
  ElementRange elements;      // of the tensor
  size_t scale = 0;           // in the packet, that of the first block
  size_t packet_element = 0;  // in the packet, the first one
};

// Calls take(PacketPart) for the chunks of a step's packet that are not empty: a single one, or
// all of the tensor, where elements of a packet are those of the tensor.
template <typename Take>
void ForEachPart(const Plan& plan, const Step& step, const Take& take) {
  if (step.chunk != kAllChunks) {
    if (step.elements.count != 0) take(PacketPart{step.chunk, step.elements});
    return;
  }
  size_t scale = 0;
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    const ElementRange elements = plan.partition.Chunk(chunk);
    if (elements.count != 0) take(PacketPart{chunk, elements, scale, elements.begin});
    scale += ShapeOf(elements.count, plan.key.mean_format()).scale_count;
  }
}

// Bytes between scales and codes would otherwise be those of a former call.
inline void ClearPadding(const Call& call, const Step& step) {
  const size_t used = step.shape.used_scale_bytes();
  const size_t padding = step.shape.scale_bytes() - used;
  std::byte* const scales = call.Write(step.region) + step.shape.weight_bytes();
  if (padding != 0) std::memset(scales + used, 0, padding);
}

// The packet of a chunk, in a step that compresses all chunks into one packet each: there is one
// scale for the tensor.
inline PacketShape ChunkShape(const Call& call, uint32_t chunk) {
  return ShapeOf(call.plan->partition.Chunk(chunk).count, call.plan->key.packet_format());
}
inline Region ChunkPacket(const Call& call, const Step& step, uint32_t chunk) {
  return {Space::kPackets, step.sources + chunk * step.stride, ChunkShape(call, chunk).bytes()};
}

// The element of the server residual that belongs to the first one of a part.
inline size_t ServedElement(const Plan& plan, const PacketPart& part) {
  return part.elements.begin - plan.served.begin;
}

// Draws for elements of the tensor from `first_element` on.
inline kernels::Draws DrawsOf(const Call& call, size_t first_element, uint32_t stream) {
  const Compressor& compressor = *call.compressor;
  return {.seed = compressor.config().seed,
          .first = first_element,
          .epoch = static_cast<uint32_t>(compressor.epoch()),
          .tensor = compressor.config().tensor_id,
          .stream = stream};
}
// The draws of this rank as a worker differ from those as the server of a chunk.
inline kernels::Draws WorkerDraws(const Call& call, const PacketPart& part) {
  return DrawsOf(call, part.elements.begin, call.plan->rank);
}
inline kernels::Draws ServerDraws(const Call& call, const PacketPart& part) {
  constexpr uint32_t kServerStream = 65'536;
  return DrawsOf(call, part.elements.begin, kServerStream + part.chunk);
}

// All ranks share these draws, as workers and as servers.
inline kernels::Draws SharedDraws(const Call& call, size_t first_element) {
  return DrawsOf(call, first_element, kernels::kSharedStream);
}

}  // namespace onebit
