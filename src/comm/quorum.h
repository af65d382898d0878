// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Who may go on when a communicator has come apart.
#pragma once

#include <algorithm>
#include <span>

namespace onebit {

// True if the ranks that have met are more than half of those that may be alive, or half of them
// with the lowest. Two groups without a rank in common never both are, whatever each knows of the
// dead, as long as no living rank counts as dead. Ranks 0 to `ranks` - 1; the lists are sorted and
// have nothing in common.
inline bool HasQuorum(int ranks, std::span<const int> met, std::span<const int> dead) {
  const size_t alive = static_cast<size_t>(ranks) - dead.size();
  if (2 * met.size() != alive) return 2 * met.size() > alive;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!std::ranges::binary_search(dead, rank)) return std::ranges::binary_search(met, rank);
  }
  return false;
}

}  // namespace onebit
