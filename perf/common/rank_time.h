// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The time of a call in which all ranks took part, out of the time of each: nccl-tests' -a.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>

namespace onebit::perf {

enum class RankTime { kRank0 = 0, kMean = 1, kLeast = 2, kMost = 3 };

// `seconds` has at least one rank.
inline double SecondsOver(std::span<const double> seconds, RankTime choice) {
  switch (choice) {
    case RankTime::kRank0:
      return seconds.front();
    case RankTime::kMean:
      break;
    case RankTime::kLeast:
      return *std::min_element(seconds.begin(), seconds.end());
    case RankTime::kMost:
      return *std::max_element(seconds.begin(), seconds.end());
  }
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

}  // namespace onebit::perf
