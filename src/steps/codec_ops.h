// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The work of a family of codecs on memory of the host: the computing steps of a plan, and for
// calls with weights, its packets to fp32 and back. A new family is a subclass that StepCompute
// chooses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "steps/batch.h"
#include "steps/packet_parts.h"

namespace onebit {

// Functions return true if all values are finite, or if the codec leaves those that are not to
// their blocks. Owned by a StepCompute and used by its thread.
class CodecOps {
 public:
  virtual ~CodecOps() = default;

  // Elements of the input -> packet.
  virtual bool Compress(const Call& call, const Step& step) = 0;
  // Packets of all ranks -> packet.
  virtual bool Reduce(const Call& call, const Step& step) = 0;
  // Packets of all ranks -> elements of the output.
  virtual bool Average(const Call& call, const Step& step) = 0;
  // Packet -> elements of the output.
  virtual bool Decode(const Call& call, const Step& step) = 0;

  // Decoded values of a tile stay in the first-level cache until they are added.
  static constexpr size_t kTile = 2048;
  // Returns how many elements of a part, from number `at` on, DecodeTo takes at once: whole blocks,
  // or a part of one. More than kTile where packets can only be decoded as a whole.
  virtual size_t TileAt(const Call& call, const PacketPart& part, size_t at) const;
  // Decodes a tile of a part from the packet of a rank or host, which may begin with a weight.
  virtual void DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                        size_t at, size_t count, float* values) const = 0;
  // Compresses a part to the packet of the step, which has no weight.
  virtual bool CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                            const kernels::CompressInput& in) = 0;
  // Changes a mean that is written to the output as the codec changes what it decodes.
  virtual void ScaleMean(const Call& /*call*/, size_t /*count*/, float* /*mean*/) const {}
  // Writes the packet of a step, or its elements of the output, as zeros.
  virtual void WriteZeros(const Call& call, const Step& step) const;

 protected:
  // Counts the blocks that are not finite, and judges the results.
  template <typename Result>
  static bool Judge(const Call& call, const Result& result) {
    call.compressor->AddNonfiniteBlocks(result.nonfinite_blocks);
    return result.is_finite || !call.plan->key.codec.has_feedback();
  }
  // Shape of the packets that a step reads. A worker has one scale for all chunks if the block is
  // the tensor.
  static PacketShape SourceShape(const Call& call, const Step& step);
  static const uint8_t* MaskAt(const Call& call, const PacketPart& part, size_t at);
};

}  // namespace onebit
