// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Access to buffers of any element type.
#pragma once

#include <cstddef>

#include "device/api_type.h"
#include "device/memory.h"
#include "kernels/types.h"

namespace onebit::optim {

inline std::byte* ElementAt(void* values, kernels::DataType type, size_t index) {
  return static_cast<std::byte*>(values) + index * kernels::BytesOf(type);
}

inline float* Floats(const Memory& memory) { return reinterpret_cast<float*>(memory.data()); }

}  // namespace onebit::optim
