// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How a step adds up elements that are not compressed, on the host and on devices.
#pragma once

#include "kernels/types.h"
#include "plan/plan.h"
#include "steps/batch.h"

namespace onebit {

struct DenseReduction {
  kernels::DenseOp op = kernels::DenseOp::kSum;
  kernels::DenseTerms terms;  // factors: null, or Plan::host_sizes
};

// Sums of hosts pass as sums, which the owner of a chunk divides once. Those of 16-bit floats pass
// as means, because their sums overflow where a mean does not. Compressed calls take the mean of a
// host, so that residuals are in units of the ranks' elements.
DenseReduction DenseReductionOf(const Call& call, const Step& step);

}  // namespace onebit
