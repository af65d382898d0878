// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A code for every element, in packets whose parts can be read from any block on, on host memory.
// Subclasses define the code, and what is in front of the codes.
#pragma once

#include <vector>

#include "steps/codec_ops.h"

namespace onebit {

class ElementCodeOps : public CodecOps {
 public:
  explicit ElementCodeOps(uint32_t ranks) : packets_(ranks) {}

  bool Compress(const Call& call, const Step& step) final;
  bool Reduce(const Call& call, const Step& step) final;
  bool Average(const Call& call, const Step& step) final;
  bool Decode(const Call& call, const Step& step) final;
  void DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                size_t at, size_t count, float* values) const final;
  bool CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                    const kernels::CompressInput& in) final;

 protected:
  using Result = kernels::LowBitResult;

 private:
  // The kernels of the codec (kernels/low_bit.h): Compress, Reduce, Average and AddDelta.
  virtual Result EncodeInput(const kernels::CompressInput& in, const Codec& codec,
                             const kernels::Draws& draws, kernels::LowBitPacket out) const = 0;
  virtual Result EncodeSum(const kernels::LowBitReduceInput& in, const Codec& codec,
                           const kernels::Draws& draws, kernels::LowBitPacket out) const = 0;
  virtual Result DecodeSum(const kernels::LowBitReduceInput& in, const Codec& codec,
                           void* output) const = 0;
  virtual Result DecodeDelta(const kernels::LowBitDeltaInput& in, const Codec& codec,
                             void* output) const = 0;

  // Decodes a single packet.
  Result DecodeOne(const kernels::LowBitPacketView& packet, const Codec& codec, size_t count,
                   const uint8_t* mask, kernels::DataType type, void* output) const;
  // Fills packets_ with the pieces of all ranks, from this scale and element on.
  void FindPieces(const Call& call, const Step& step, size_t scale, size_t element);

  std::vector<kernels::LowBitPacketView> packets_;  // by rank
};

}  // namespace onebit
