// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Inputs whose sums are exact in whatever order a system adds them, and these sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "perf/common/all_reduce_reference.h"

namespace onebit::perf {

// Writes the input of one rank: seeded multiples of 1/64 below 4 in magnitude. Sums of such numbers
// over 1024 ranks are exact in fp32.
void FillExact(float* values, size_t count, uint64_t seed, int rank);

// Expects the sum of the inputs from every call.
class ExactSum : public AllReduceReference {
 public:
  using AllReduceReference::AllReduceReference;

 private:
  void Simulate(std::span<const void* const> inputs, void* output) override;
};

}  // namespace onebit::perf
