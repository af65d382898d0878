// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/codec_ops.h"

#include <algorithm>
#include <cstring>

namespace onebit {

size_t CodecOps::TileAt(const Call& call, const PacketPart& part, size_t at) const {
  const size_t block = call.plan->key.codec.block;
  const size_t left = part.elements.count - at;
  if (block == 0) return std::min(left, kTile);
  if (block > kTile) return std::min({left, kTile, block - at % block});
  return std::min(left, kTile / block * block);
}

void CodecOps::WriteZeros(const Call& call, const Step& step) const {
  if (step.region.bytes != 0) std::memset(call.Write(step.region), 0, step.region.bytes);
}

PacketShape CodecOps::SourceShape(const Call& call, const Step& step) {
  PacketShape shape = step.shape;
  shape.is_weighted = call.plan->key.is_weighted;
  if (step.chunk == kAllChunks && call.plan->key.codec.block == 0) shape.scale_count = 1;
  return shape;
}

const uint8_t* CodecOps::MaskAt(const Call& call, const PacketPart& part, size_t at) {
  const uint8_t* const mask = call.compressor->mask(part.elements.begin);
  return mask == nullptr ? nullptr : mask + at / 8;
}

}  // namespace onebit
