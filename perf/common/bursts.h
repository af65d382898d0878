// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How the timed calls of a row are cut into bursts that run without a pause.
#pragma once

#include <vector>

#include "onebit/onebit.h"

namespace onebit::perf {

// Lengths of the bursts, their sum being `iterations`: as equal as possible, none above `longest`,
// at least `rounds` of them if there are that many iterations.
std::vector<int> BurstLengths(int iterations, int rounds, int longest);

// Calls in place after which the data must be fresh. A sum over n ranks in place grows n-fold each
// time; beyond some size its squares leave fp32, or the numbers their type, and another path of the
// code would be timed.
int LongestInPlaceBurst(onebitDataType_t type, onebitRedOp_t op, int ranks);

// How many calls fit in a time when one of them takes `seconds_per_call`: at least kFewestCalls, so
// that one that was disturbed is noticed, and at most `most`.
inline constexpr int kFewestCalls = 2;
int CallsThatFit(double seconds, double seconds_per_call, int most);

}  // namespace onebit::perf
