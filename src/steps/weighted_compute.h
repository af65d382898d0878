// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computing steps of calls in which every rank has a weight, for every codec: the packets of those
// present are decoded and added up in fp32, and their mean becomes what is compressed again.
#pragma once

#include <vector>

#include "steps/codec_ops.h"

namespace onebit {

// True if this rank contributes nothing to a call with weights.
inline bool IsAbsent(const Call& call) {
  return call.plan->key.is_weighted && call.compressor->weight() == 0;
}

// Steps of a rank that is absent: its residual stays, and if it is alone its output is 0.
bool KeepResidual(const Call& call, const Step& compress);
bool ClearOutput(const Call& call, const Step& copy);

class WeightedCompute {
 public:
  explicit WeightedCompute(uint32_t ranks) : weights_(ranks) {}

  // Returns true if all results are finite, or the call leaves such values to their blocks.
  bool Reduce(const Call& call, const Step& step, CodecOps* ops);

 private:
  bool ReducePart(const Call& call, const Step& step, const PacketPart& part, CodecOps* ops);
  // Writes the weighted mean of the ranks' packets to `mean`.
  void Average(const Call& call, const Step& step, const PacketPart& part, const CodecOps& ops,
               float* mean) const;
  static bool Compress(const Call& call, const Step& step, const PacketPart& part,
                       const float* mean, CodecOps* ops);

  std::vector<float> weights_;  // by rank, of the step that runs
  float weight_sum_ = 0;
};

}  // namespace onebit
