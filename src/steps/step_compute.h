// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the computing steps of a plan on host memory.
#pragma once

#include <vector>

#include "steps/batch.h"
#include "steps/bf16_ops.h"
#include "steps/low_bit_ops.h"
#include "steps/sign_ops.h"
#include "steps/sparse_ops.h"
#include "steps/weighted_compute.h"

namespace onebit {

// Checksum of this rank's estimate of `chunk` after the call, in an all-gather with error feedback.
kernels::Checksum HeldChecksum(const Call& call, uint32_t chunk);

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
      : signs_(ranks),
        low_bit_(ranks),
        sparse_(ranks),
        bf16_(ranks),
        weighted_(ranks),
        pieces_(ranks) {}

  // Runs `step`. checksums[p] receives the checksum of every packet p the step makes; null if they
  // are not needed. is_nonfinite: an input of the step is not finite, so it makes an all-zero
  // packet. Returns true if its results are finite.
  bool Run(const Call& call, const Step& step, bool is_nonfinite, kernels::Checksum* checksums);

 private:
  bool Compute(const Call& call, const Step& step);
  void ReduceDense(const Call& call, const Step& step);
  bool Copy(const Call& call, const Step& step);
  CodecOps& OpsOf(const Codec& codec) {
    if (codec.is_sparse()) return sparse_;
    if (codec.is_low_bit()) return low_bit_;
    if (codec.is_bf16()) return bf16_;
    return signs_;
  }

  SignOps signs_;
  LowBitOps low_bit_;
  SparseOps sparse_;
  Bf16Ops bf16_;
  WeightedCompute weighted_;
  std::vector<const void*> pieces_;  // of a dense reduce step, by rank
};

}  // namespace onebit
