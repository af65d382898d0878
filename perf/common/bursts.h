// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Cuts the timed calls of a row into bursts that run without a pause.
#pragma once

#include <vector>

#include "onebit/onebit.h"

namespace onebit::perf {

// Returns the lengths of the bursts, which add up to `iterations`: as equal as possible, none above
// `longest`, and at least `rounds` of them if there are that many iterations.
std::vector<int> BurstLengths(int iterations, int rounds, int longest);

// Returns after how many calls in place the data must be renewed. A sum over n ranks in place grows
// n-fold each time; beyond some size its squares overflow fp32, or the numbers their type, and
// another path of the code would be timed. Integers wrap, which changes no path.
int LongestInPlaceBurst(onebitDataType_t type, onebitRedOp_t op, int ranks);

// Returns how many calls fit in a time if one takes `seconds_per_call`: at least kFewestCalls, so a
// disturbed one is noticed, and at most `most`.
inline constexpr int kFewestCalls = 2;
int CallsThatFit(double seconds, double seconds_per_call, int most);

}  // namespace onebit::perf
