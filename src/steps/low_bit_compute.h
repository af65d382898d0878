// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the compressing, reducing and decoding steps of calls with a low-bit codec on host memory.
#pragma once

#include <vector>

#include "kernels/low_bit.h"
#include "steps/batch.h"

namespace onebit {

// Owned by a StepCompute and used by its thread.
class LowBitCompute {
 public:
  explicit LowBitCompute(uint32_t ranks) : packets_(ranks) {}

  // Returns whether all results are finite. Without error feedback always true: a block that is not
  // finite decodes to NaN, and all other blocks are right.
  bool Run(const Call& call, const Step& step);

 private:
  kernels::LowBitResult Compute(const Call& call, const Step& step);
  kernels::LowBitResult Compress(const Call& call, const Step& step);
  kernels::LowBitResult Reduce(const Call& call, const Step& step);
  kernels::LowBitResult Average(const Call& call, const Step& step);
  kernels::LowBitResult Decode(const Call& call, const Step& step);
  // Fills packets_ with the pieces of all ranks, from this scale and element on.
  void FindPieces(const Call& call, const Step& step, size_t scale, size_t element);

  std::vector<kernels::LowBitPacketView> packets_;  // by rank
};

}  // namespace onebit
