// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Bursts of equal length, short enough that sums in place stay in range.
#include "perf/common/bursts.h"

#include <algorithm>
#include <climits>
#include <cmath>

#include "perf/common/seeded_elements.h"

namespace onebit::perf {

std::vector<int> BurstLengths(int iterations, int rounds, int longest) {
  if (iterations == 0) return {};
  const int needed = iterations / longest + (iterations % longest != 0);  // no overflow: INT_MAX
  const int bursts = std::min(iterations, std::max(needed, rounds));
  std::vector<int> lengths(static_cast<size_t>(bursts), iterations / bursts);
  for (int burst = 0; burst < iterations % bursts; ++burst) ++lengths[static_cast<size_t>(burst)];
  return lengths;
}

int LongestInPlaceBurst(onebitDataType_t type, onebitRedOp_t op, int ranks) {
  if (op != onebitSum || ranks == 1 || IsInteger(type)) return INT_MAX;
  // Inputs are below 4 and residuals below a few times that. fp16 overflows at 2^16, and the sum of
  // the squares of a block must stay below 2^127.
  const double largest_growth_log2 = type == onebitFloat16 ? 12 : 40;
  return std::max(1, static_cast<int>(largest_growth_log2 / std::log2(ranks)));
}

int CallsThatFit(double seconds, double seconds_per_call, int most) {
  if (seconds_per_call * most <= seconds) return most;  // no overflow, and no division by zero
  return std::min(most, std::max(kFewestCalls, static_cast<int>(seconds / seconds_per_call)));
}

}  // namespace onebit::perf
