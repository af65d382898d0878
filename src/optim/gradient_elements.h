// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Access to buffers of any element type, and the public API's element types.
#pragma once

#include <cstddef>

#include "device/memory.h"
#include "kernels/types.h"
#include "onebit/onebit.h"

namespace onebit::optim {

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

inline std::byte* ElementAt(void* values, kernels::DataType type, size_t index) {
  return static_cast<std::byte*>(values) + index * kernels::BytesOf(type);
}

inline float* Floats(const Memory& memory) { return reinterpret_cast<float*>(memory.data()); }

}  // namespace onebit::optim
