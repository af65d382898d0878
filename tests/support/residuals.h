// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Looks at the residuals inside a compressor handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::testing {

// The generation in force; empty vectors where the mode has no residual.
struct Residuals {
  std::vector<std::byte> worker;
  std::vector<std::byte> server;  // of the elements that this rank serves

  friend bool operator==(const Residuals&, const Residuals&) = default;
};
Residuals ResidualsOf(onebitCompressor_t compressor);

// The same as fp32; zeros where the mode has no residual.
std::vector<float> WorkerResidualOf(onebitCompressor_t compressor);
std::vector<float> ServerResidualOf(onebitCompressor_t compressor);

}  // namespace onebit::testing
