// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts of an all-to-all-v in which ranks send each other different numbers of rows, and some
// nothing, as a mixture of experts sends its tokens.
#pragma once

#include <cstddef>
#include <vector>

#include "perf/common/collective.h"

namespace onebit::perf {

// Elements that `from` sends `to`: whole rows, up to row.count elements. A pure function, so every
// process knows the counts of all ranks.
size_t RaggedCount(const Case& row, int from, int to);

// The ranges that one rank sends, or receives, one after the other without gaps.
struct Ranges {
  std::vector<size_t> counts;  // by peer
  std::vector<size_t> begins;
  size_t total = 0;
};
Ranges SentRanges(const Case& row, int rank);
Ranges ReceivedRanges(const Case& row, int rank);

}  // namespace onebit::perf
