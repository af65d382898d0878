// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plan/host_sums.h"

#include <tuple>

namespace onebit {

HostPart HostSums::AddSum(Step sum, uint16_t segment, const Region& dense) {
  const PlanKey& key = builder_.plan().key;
  const auto ranks = static_cast<uint32_t>(ranks_.size());
  const size_t bytes = sum.elements.count * kernels::BytesOf(key.type);
  sum.kind = StepKind::kHostSum;
  sum.pieces = ranks;
  sum.own_piece = local_rank_;
  std::tie(sum.sources, sum.stride) = builder_.Reserve(ranks, bytes);
  sum.region = key.codec.is_dense() ? dense : builder_.Reserve(sum.elements.count * sizeof(float));
  // The weights of the ranks, and then their sum.
  if (key.is_weighted) sum.own_source = builder_.Reserve((ranks + 1) * sizeof(float)).offset;
  // In place, a result may overwrite the input once its sum is there.
  const uint32_t summed = builder_.Add(sum, {builder_.StageInput()});
  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t local_rank = (local_rank_ + k) % ranks;
    builder_.AddDependency(
        summed,
        builder_.Add({.kind = StepKind::kReceive,
                      .exchange = 1,
                      .segment = segment,
                      .chunk = sum.chunk,
                      .peer = ranks_[local_rank],
                      .elements = sum.elements,
                      .region = {Space::kPackets, sum.sources + local_rank * sum.stride, bytes},
                      .own_source = sum.own_source + local_rank * sizeof(float)}));
  }
  return {.step = summed, .region = sum.region, .weight = sum.own_source + ranks * sizeof(float)};
}

HostPart HostSums::AddCompress(Step compress, const HostPart& mean) {
  if (mean.step != kNoStep) {
    compress.mean = mean.region.offset;
    compress.own_source = mean.weight;
  }
  compress.region = builder_.Reserve(compress.shape.bytes());
  compress.packet = builder_.NewPackets();
  const uint32_t compressed = builder_.Add(compress, {mean.step});
  return {.step = compressed, .region = compress.region, .packet = compress.packet};
}

}  // namespace onebit
