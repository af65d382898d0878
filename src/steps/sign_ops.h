// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One bit an element, with a scale per block, per chunk or for the tensor, on host memory.
#pragma once

#include <vector>

#include "plan/runs.h"
#include "steps/codec_ops.h"

namespace onebit {

class SignOps final : public CodecOps {
 public:
  explicit SignOps(uint32_t ranks) : bits_(ranks), scales_(ranks) {}

  bool Compress(const Call& call, const Step& step) override;
  bool Reduce(const Call& call, const Step& step) override;
  bool Average(const Call& call, const Step& step) override;
  bool Decode(const Call& call, const Step& step) override;
  void DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                size_t at, size_t count, float* values) const override;
  bool CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                    const kernels::CompressInput& in) override;

 private:
  bool CompressTensor(const Call& call, const Step& step);
  bool CompressWhole(const Call& call, const Step& step);
  bool CompressRuns(const Call& call, const Step& step);
  bool ReduceRun(const Call& call, const Step& step, const PacketRun& run);
  bool AddDelta(const Call& call, const Step& step);
  // Fills bits_ and scales_ with the pieces of all ranks, starting at these offsets in their
  // packets.
  void FindPieces(const Call& call, const Step& step, PacketShape shape, size_t scale_offset,
                  size_t bit_offset);

  // By rank, set by each step that reads all packets.
  std::vector<const uint8_t*> bits_;
  std::vector<const float*> scales_;
};

}  // namespace onebit
