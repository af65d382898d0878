// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Gives access to the residuals of a compressor handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::testing {

// The current generation. Vectors are empty if the mode has no residual.
struct Residuals {
  std::vector<std::byte> worker;
  std::vector<std::byte> server;  // elements that this rank serves

  friend bool operator==(const Residuals&, const Residuals&) = default;
};
Residuals ResidualsOf(onebitCompressor_t compressor);

// The same in fp32; zeros if the mode has no residual.
std::vector<float> WorkerResidualOf(onebitCompressor_t compressor);
std::vector<float> ServerResidualOf(onebitCompressor_t compressor);

}  // namespace onebit::testing
