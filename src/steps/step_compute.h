// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the computing steps of a plan on host memory.
#pragma once

#include <vector>

#include "plan/runs.h"
#include "steps/batch.h"
#include "steps/low_bit_compute.h"
#include "steps/sparse_compute.h"
#include "steps/weighted_compute.h"

namespace onebit {

// Checksum of this rank's estimate of `chunk` after the call, in an all-gather with error feedback.
kernels::Checksum HeldChecksum(const Call& call, uint32_t chunk);

// Compresses a piece to signs with scales of its own: one for each block, or a single one if
// `block` is 0. Returns false if a value or a scale is not finite.
bool CompressSigns(const kernels::CompressInput& in, size_t block, const PacketView& packet);

// Completes the packets of a compress or reduce step: clears them if values are not finite, and
// computes their checksums. checksums: as for StepCompute::Run.
void FinishPackets(const Call& call, const Step& step, bool is_finite,
                   kernels::Checksum* checksums);

// Writes the packet of a verdict step.
void WriteVerdict(const Call& call, const Step& step, kernels::Checksum held,
                  kernels::Checksum* checksums);

// Runs all steps except messages. Owned by an executor and used by its thread.
class StepCompute {
 public:
  explicit StepCompute(uint32_t ranks)
      : low_bit_(ranks),
        sparse_(ranks),
        weighted_(ranks),
        bits_(ranks),
        scales_(ranks),
        pieces_(ranks) {}

  // Runs `step`. checksums[p] receives the checksum of every packet p the step makes; null if they
  // are not needed. is_nonfinite: an input of the step is not finite, so it makes an all-zero
  // packet. Returns true if its results are finite.
  bool Run(const Call& call, const Step& step, bool is_nonfinite, kernels::Checksum* checksums);

 private:
  bool Compute(const Call& call, const Step& step);
  bool Compress(const Call& call, const Step& step);
  bool CompressTensor(const Call& call, const Step& step);
  bool CompressWhole(const Call& call, const Step& step);
  bool CompressRuns(const Call& call, const Step& step);
  bool Reduce(const Call& call, const Step& step);
  bool ReduceRun(const Call& call, const Step& step, const PacketRun& run);
  // Fills bits_ and scales_ with the pieces of all ranks, starting at these offsets in their
  // packets.
  void FindPieces(const Call& call, const Step& step, PacketShape shape, size_t scale_offset,
                  size_t bit_offset);
  bool Average(const Call& call, const Step& step);
  void ReduceDense(const Call& call, const Step& step);
  bool Decode(const Call& call, const Step& step);
  bool AddDelta(const Call& call, const Step& step);
  bool Copy(const Call& call, const Step& step);

  LowBitCompute low_bit_;
  SparseCompute sparse_;
  WeightedCompute weighted_;
  // Pointers to the pieces of all ranks, set by each reduce step.
  std::vector<const uint8_t*> bits_;
  std::vector<const float*> scales_;
  std::vector<const void*> pieces_;
};

}  // namespace onebit
