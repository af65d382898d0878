// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Lists of ranks in texts.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "base/format.h"

namespace onebit {

// "0 2 3"; of many, the first ones and how many there are.
inline std::string TextOfRanks(std::span<const int> ranks) {
  constexpr size_t kMost = 32;
  std::string text;
  for (const int rank : ranks.first(std::min(ranks.size(), kMost))) {
    AppendFormat(&text, "{}{}", text.empty() ? "" : " ", rank);
  }
  if (ranks.size() > kMost) AppendFormat(&text, " ... ({} in all)", ranks.size());
  return text;
}

}  // namespace onebit
