// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks calls of another system against what it must give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "perf/baselines/system.h"

namespace onebit::perf {

struct CheckResult {
  uint64_t wrong_out_of_place = 0;  // elements, over all ranks and calls
  uint64_t wrong_in_place = 0;
  std::string problem;  // the first wrong element of this rank, in words; empty if there is none
};

// `passes` times the expected calls, out of place and in place. Overwrites the first `count`
// elements of both buffers; counts are the same on every rank.
CheckResult CheckRow(System& system, size_t count, int passes, std::span<float> send,
                     std::span<float> recv);

// The error of one call from nothing on what `send` holds, seeded by `seed`, relative to the exact
// sum in the 2-norm; the same on every rank.
double RelativeErrorOfFirstCall(System& system, size_t count, uint64_t seed,
                                std::span<const float> send, std::span<float> recv);

}  // namespace onebit::perf
