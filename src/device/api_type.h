// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The public API's element types.
#pragma once

#include "kernels/types.h"
#include "onebit/onebit.h"

namespace onebit {

inline onebitDataType_t ApiType(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kF32:
      return onebitFloat32;
    case kernels::DataType::kF16:
      return onebitFloat16;
    case kernels::DataType::kBf16:
      return onebitBfloat16;
    case kernels::DataType::kI32:
      return onebitInt32;
    case kernels::DataType::kI64:
      return onebitInt64;
    case kernels::DataType::kU8:
      return onebitUint8;
    case kernels::DataType::kF64:
      return onebitFloat64;
  }
  return onebitFloat32;
}

}  // namespace onebit
