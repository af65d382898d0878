// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs the compressing, reducing and decoding steps of calls with a sparse codec on host memory.
// Each of their packets has elements of one chunk.
#pragma once

#include <vector>

#include "kernels/sparse.h"
#include "steps/batch.h"

namespace onebit {

// The draws for elements of the tensor: the same on all ranks, for workers and servers.
inline kernels::Draws SharedDraws(const Call& call, size_t first_element) {
  const Compressor& compressor = *call.compressor;
  return {.seed = compressor.config().seed,
          .first = first_element,
          .epoch = static_cast<uint32_t>(compressor.epoch()),
          .tensor = compressor.config().tensor_id,
          .stream = kernels::kSharedStream};
}

// Owned by a StepCompute and used by its thread.
class SparseCompute {
 public:
  explicit SparseCompute(uint32_t ranks) : packets_(ranks) {}

  // Returns whether all results are finite. Without error feedback always true: a block that is not
  // finite has NaN, and all other blocks are right.
  bool Run(const Call& call, const Step& step);

 private:
  kernels::SparseResult Compute(const Call& call, const Step& step);
  kernels::SparseResult Compress(const Call& call, const Step& step) const;
  kernels::SparseResult Reduce(const Call& call, const Step& step);
  kernels::SparseResult Average(const Call& call, const Step& step);
  kernels::SparseResult Decode(const Call& call, const Step& step) const;
  // The packets of all ranks for the step's elements.
  kernels::SparseReduceInput PacketsOf(const Call& call, const Step& step);

  std::vector<const void*> packets_;  // by rank
};

}  // namespace onebit
