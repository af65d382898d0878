// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Small codes with a scale per block (kernels/low_bit.h), on host memory.
#pragma once

#include <vector>

#include "steps/codec_ops.h"

namespace onebit {

class LowBitOps final : public CodecOps {
 public:
  explicit LowBitOps(uint32_t ranks) : packets_(ranks) {}

  bool Compress(const Call& call, const Step& step) override;
  bool Reduce(const Call& call, const Step& step) override;
  bool Average(const Call& call, const Step& step) override;
  bool Decode(const Call& call, const Step& step) override;
  void DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                size_t at, size_t count, float* values) const override;
  bool CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                    const kernels::CompressInput& in) override;

 private:
  // Fills packets_ with the pieces of all ranks, from this scale and element on.
  void FindPieces(const Call& call, const Step& step, size_t scale, size_t element);

  std::vector<kernels::LowBitPacketView> packets_;  // by rank
};

}  // namespace onebit
