// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call's reduction, in the words of the kernels and of transports.
#pragma once

#include "codec/message_header.h"
#include "kernels/types.h"
#include "onebit/onebit.h"

namespace onebit {

constexpr kernels::DenseOp DenseOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return kernels::DenseOp::kSum;
    case ReduceOp::kMax:
      return kernels::DenseOp::kMax;
    case ReduceOp::kMin:
      return kernels::DenseOp::kMin;
    case ReduceOp::kAvg:
      return kernels::DenseOp::kAverage;
  }
  return kernels::DenseOp::kSum;
}

// Headers have the API's numbers.
constexpr onebitRedOp_t ApiOp(ReduceOp op) { return static_cast<onebitRedOp_t>(op); }
static_assert(ApiOp(ReduceOp::kSum) == onebitSum && ApiOp(ReduceOp::kMax) == onebitMax &&
              ApiOp(ReduceOp::kMin) == onebitMin && ApiOp(ReduceOp::kAvg) == onebitAvg);

}  // namespace onebit
