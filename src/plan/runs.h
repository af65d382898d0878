// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The runs of a packet of signs: elements whose blocks follow one another, up to a cut or the end
// of a chunk. Kernels take one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "codec/packet.h"
#include "plan/plan.h"

namespace onebit {

struct PacketRun {
  ElementRange elements;  // of the tensor; never empty
  size_t scale = 0;       // in the packet, that of the first block
  size_t byte = 0;        // in the packet's bits, the first one
};

// Walks through a packet from its beginning.
class RunWalk {
 public:
  RunWalk(const Cuts* cuts, size_t block) : cuts_(cuts), block_(block) {}

  // Calls take(PacketRun) for each run of `elements`, which come next in the packet.
  template <typename Take>
  void Over(ElementRange elements, const Take& take) {
    for (size_t begin = elements.begin; begin < elements.end();) {
      const size_t end =
          cuts_ == nullptr ? elements.end() : std::min(elements.end(), cuts_->After(begin));
      const size_t count = end - begin;
      take(PacketRun{{begin, count}, scale_, byte_});
      scale_ += block_ == 0 ? 1 : kernels::BlockCount(count, block_);
      element_count_ = 8 * byte_ + count;
      byte_ += kernels::BitBytes(count);
      begin = end;
    }
  }

  // Shape of the packet as far as it was walked. Unused bits between runs count as elements.
  PacketShape Shape(const PacketFormat& format) const {
    PacketShape shape = ShapeOf(0, format);
    shape.scale_count = scale_;
    shape.element_count = element_count_;
    return shape;
  }

 private:
  const Cuts* cuts_;
  const size_t block_;
  size_t scale_ = 0;
  size_t byte_ = 0;
  size_t element_count_ = 0;
};

// Calls take(PacketRun) for the runs of a step's packet: of one chunk, or of all.
template <typename Take>
void ForEachRun(const Plan& plan, const Step& step, const Take& take) {
  RunWalk walk(plan.key.cuts.get(), plan.key.codec.block);
  if (step.chunk != kAllChunks) return walk.Over(step.elements, take);
  for (uint32_t chunk = 0; chunk < plan.ranks; ++chunk) {
    walk.Over(plan.partition.Chunk(chunk), take);
  }
}

// Shape of the packet of `elements`, all of one chunk.
inline PacketShape ShapeOf(const PlanKey& key, ElementRange elements, const PacketFormat& format) {
  if (key.cuts == nullptr) return ShapeOf(elements.count, format);
  RunWalk walk(key.cuts.get(), format.codec.block);
  walk.Over(elements, [](const PacketRun&) {});
  return walk.Shape(format);
}

}  // namespace onebit
