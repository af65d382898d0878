// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parts that the plans of reduce-scatter, all-gather and all-to-all share: the tensor is one chunk
// per rank, cut by the count of the call.
//
// Compressed calls of this kind end with verdicts, except those without feedback of codes other
// than signs, which keep nothing and leave values that are not finite to their blocks. Their
// packets go one way only, so received packets do not tell whether the other ranks met a value that
// is not finite, or had everything they needed. After its last computing step a rank sends its
// verdict to all (exchange 2, headers only). Once it has all verdicts, the call can be committed.
#pragma once

#include <vector>

#include "plan/plan_builder.h"

namespace onebit {

class ChunkPlanner {
 public:
  ChunkPlanner(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

  bool is_dense() const { return key_.codec.is_dense(); }
  const PlanKey& key() const { return key_; }
  uint32_t rank() const { return rank_; }
  uint32_t ranks() const { return ranks_; }
  uint32_t segments() const { return builder_.plan().segments(); }
  // Starting after this rank spreads the load.
  uint32_t Peer(uint32_t k) const { return (rank_ + k) % ranks_; }
  PlanBuilder& builder() { return builder_; }
  Plan& plan() { return builder_.plan(); }

  ElementRange Elements(uint32_t chunk, uint32_t segment) const;
  // Bytes of a chunk's segment on the wire.
  size_t PieceBytes(uint32_t chunk, uint32_t segment) const;
  // Makes a step for one segment of a chunk.
  Step StepOf(StepKind kind, uint32_t chunk, uint32_t segment) const;
  // The step's elements in the caller's buffers.
  Region InputRegion(const Step& step) const;
  Region OutputRegion(const Step& step) const;

  // Adds a computing step. The verdict waits for it.
  uint32_t Compute(const Step& step, std::initializer_list<uint32_t> after = {});
  // The same for a step that is there.
  void NoteComputed(uint32_t step) { computing_.push_back(step); }
  // Makes a step a message inside a host, among those for several chunks: `number` is that of its
  // own.
  void PassInsideHost(uint8_t exchange, uint32_t number, Step* message) const;
  // Adds a receive step, whose region this sets, and decodes its chunk if it is a packet. Returns
  // the step that receives.
  uint32_t AddReceive(Step* receive);
  // Copies this rank's own chunk from input to output uncompressed.
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

// Adds `verdict`, which waits for the computing steps, and exchanges its packet with all peers.
void ExchangeVerdicts(PlanBuilder* builder, Step verdict, const std::vector<uint32_t>& computing);

}  // namespace onebit
