// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Fills the output of a call that met a value that is not finite.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace onebit {

inline void FillNan(std::byte* output, size_t count, kernels::DataType type) {
  const auto fill = [&](auto value) {
    std::fill_n(reinterpret_cast<decltype(value)*>(output), count, value);
  };
  switch (type) {
    case kernels::DataType::kF32:
      return fill(uint32_t{0x7fc0'0000});
    case kernels::DataType::kF16:
      return fill(uint16_t{0x7e00});
    case kernels::DataType::kBf16:
      return fill(uint16_t{0x7fc0});
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

}  // namespace onebit
