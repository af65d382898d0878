// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computing steps of calls in which ranks or hosts have weights, for every codec: the packets of
// those present are decoded and added up in fp32, and their mean becomes what is compressed again.
#pragma once

#include <cstring>
#include <vector>

#include "steps/codec_ops.h"

namespace onebit {

// True if this rank contributes nothing to a call with weights.
inline bool IsAbsent(const Call& call) {
  return call.plan->key.is_weighted && call.compressor->weight() == 0;
}

// The weight of what a compress step contributes: that of this rank, or with two levels of its
// host.
inline float WeightOf(const Call& call, const Step& compress) {
  if (compress.mean == kNoOffset) return call.compressor->weight();
  float weight;
  std::memcpy(&weight, call.packets + compress.own_source, sizeof(weight));
  return weight;
}

// True if the packets of hosts are more than averaged: hosts have other numbers of ranks, or the
// call is a sum over ranks.
inline bool HasHostWeights(const Call& call) {
  return call.plan->key.has_two_levels &&
         (!call.plan->host_sizes.empty() || call.descriptor.op == ReduceOp::kSum);
}

// Steps of a rank or host that is absent: its residual stays, and where all are absent the output
// is 0.
bool KeepResidual(const Call& call, const Step& compress);
bool ClearOutput(const Call& call, const Step& step);

class WeightedCompute {
 public:
  explicit WeightedCompute(uint32_t ranks) : weights_(ranks), pieces_(ranks) {}

  // The weighted mean of the ranks on this host, and their weight, which may be 0.
  void SumHost(const Call& call, const Step& step);
  // Returns true if all results are finite, or the call leaves such values to their blocks.
  bool Reduce(const Call& call, const Step& step, CodecOps* ops);

 private:
  // Finds weights_ and divisor_. False if nobody is present.
  bool FindWeights(const Call& call, const Step& step);
  bool ReducePart(const Call& call, const Step& step, const PacketPart& part, CodecOps* ops);
  // Writes the weighted mean of the packets to `mean`; in a sum with two levels, their sum.
  void Average(const Call& call, const Step& step, const PacketPart& part, const CodecOps& ops,
               float* mean) const;
  static bool Compress(const Call& call, const Step& step, const PacketPart& part,
                       const float* mean, CodecOps* ops);

  std::vector<float> weights_;  // by rank or host, of the step that runs
  std::vector<const void*> pieces_;
  float divisor_ = 0;
};

}  // namespace onebit
