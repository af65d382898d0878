// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Some elements of each block, and nothing of the others (kernels/sparse.h), on host memory. Each
// packet has elements of one chunk.
#pragma once

#include <vector>

#include "steps/codec_ops.h"

namespace onebit {

class SparseOps final : public CodecOps {
 public:
  explicit SparseOps(uint32_t ranks) : packets_(ranks) {}

  bool Compress(const Call& call, const Step& step) override;
  bool Reduce(const Call& call, const Step& step) override;
  bool Average(const Call& call, const Step& step) override;
  bool Decode(const Call& call, const Step& step) override;
  size_t TileAt(const Call& call, const PacketPart& part, size_t at) const override;
  void DecodeTo(const Call& call, const Step& step, uint32_t rank, const PacketPart& part,
                size_t at, size_t count, float* values) const override;
  bool CompressFrom(const Call& call, const Step& step, const PacketPart& part,
                    const kernels::CompressInput& in) override;
  void ScaleMean(const Call& call, size_t count, float* mean) const override;
  void WriteZeros(const Call& call, const Step& step) const override;

 private:
  // The packets of all ranks for the step's elements.
  kernels::SparseReduceInput PacketsOf(const Call& call, const Step& step);

  std::vector<const void*> packets_;  // by rank
};

}  // namespace onebit
