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
  }
  return onebitFloat32;
}

}  // namespace onebit
