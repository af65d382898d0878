// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What plans have in common whose tensor is one chunk per rank with the boundaries of the call's
// count: reduce-scatter, all-gather, all-to-all.
//
// Compressed, each of these ends with verdicts. Their packets go one way only, so a rank cannot see
// from what it receives whether the others met a value that is not finite, or had everything they
// need. When a rank has computed all that it has to, it tells everybody (exchange 2, headers
// alone); when it has heard that from everybody, the call can be committed.
#pragma once

#include <vector>

#include "collectives/plan_builder.h"

namespace onebit {

class ChunkPlanner {
 public:
  ChunkPlanner(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

  bool is_dense() const { return key_.codec == CodecKind::kDense; }
  const PlanKey& key() const { return key_; }
  uint32_t rank() const { return rank_; }
  uint32_t ranks() const { return ranks_; }
  uint32_t segments() const { return builder_.plan().segments(); }
  // Starting after this rank spreads the load.
  uint32_t Peer(uint32_t k) const { return (rank_ + k) % ranks_; }
  PlanBuilder& builder() { return builder_; }
  Plan& plan() { return builder_.plan(); }

  ElementRange Elements(uint32_t chunk, uint32_t segment) const;
  // Bytes of that piece on the wire.
  size_t PieceBytes(uint32_t chunk, uint32_t segment) const;
  // A step about one segment of a chunk.
  Step StepOf(StepKind kind, uint32_t chunk, uint32_t segment) const;
  // Of such a step: where its elements are in the caller's buffers.
  Region InputRegion(const Step& step) const;
  Region OutputRegion(const Step& step) const;

  // Adds a step that computes: one that the verdict waits for.
  uint32_t Compute(const Step& step, std::initializer_list<uint32_t> after = {});
  // The receive of what `peer` sends for its part of the output, and its decoding if it is a
  // packet.
  void AddPieceOf(uint32_t peer, uint32_t segment);
  // The own chunk from input to output, as it is.
  void AddOwnCopy();
  Plan Build() &&;

 private:
  void AddVerdicts();

  const PlanKey& key_;
  const uint32_t rank_;
  const uint32_t ranks_;
  PlanBuilder builder_;
  std::vector<uint32_t> computing_;
};

// Adds `verdict`, which waits for the steps that compute, sends its packet to all, and receives
// theirs.
void ExchangeVerdicts(PlanBuilder* builder, Step verdict, const std::vector<uint32_t>& computing);

}  // namespace onebit
