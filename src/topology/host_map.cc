// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/host_map.h"

#include <algorithm>

#include "base/format.h"

namespace onebit {

HostMap::HostMap(uint32_t ranks) : HostMap(std::vector<std::string>(ranks)) {}

HostMap::HostMap(std::span<const std::string> names_by_rank) : first_{0} {
  constexpr uint32_t kNone = UINT32_MAX;
  const auto ranks = static_cast<uint32_t>(names_by_rank.size());
  place_of_.assign(ranks, {.host = kNone});
  rails_ = ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (place_of_[rank].host != kNone) continue;
    const uint32_t host = hosts();
    uint32_t count = 0;
    for (uint32_t other = rank; other < ranks; ++other) {
      if (names_by_rank[other] != names_by_rank[rank]) continue;
      place_of_[other] = {host, count++};
      by_host_.push_back(other);
    }
    first_.push_back(by_host_.size());
    rails_ = std::min(rails_, count);
  }
}

std::string HostMap::Text() const {
  std::string text = Format("{} host{} of", hosts(), hosts() == 1 ? "" : "s");
  if (is_even()) return Format("{} {} rank{}", text, rails_, rails_ == 1 ? "" : "s");
  // A list of every host would be long where there are many.
  constexpr uint32_t kMostNamed = 8;
  const uint32_t named = std::min(hosts(), kMostNamed);
  for (uint32_t host = 0; host < named; ++host) {
    const bool is_last = host + 1 == hosts();
    AppendFormat(&text, "{} {}", host == 0 ? "" : is_last ? " and" : ",", RanksOn(host).size());
  }
  return text + (named < hosts() ? ", ... ranks" : " ranks");
}

}  // namespace onebit
