// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Every element type and reduction of dense calls.
#pragma once

#include "kernels/types.h"

namespace onebit::kernels {

inline constexpr DataType kDenseTypes[] = {DataType::kF32, DataType::kF16, DataType::kBf16,
                                           DataType::kI32, DataType::kI64, DataType::kU8,
                                           DataType::kF64};
inline constexpr DenseOp kDenseOps[] = {DenseOp::kSum, DenseOp::kAverage, DenseOp::kMax,
                                        DenseOp::kMin};

}  // namespace onebit::kernels
