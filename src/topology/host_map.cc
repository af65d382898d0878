// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/host_map.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/format.h"

namespace onebit {

HostMap::HostMap(uint32_t ranks) : HostMap(std::vector<std::string>(ranks)) {}

HostMap::HostMap(std::span<const std::string> names_by_rank) : first_{0} {
  // There may be tens of thousands of ranks, so names are looked up, not compared in pairs.
  std::unordered_map<std::string_view, uint32_t> host_of_name;
  std::vector<uint32_t> sizes;  // by host
  for (const std::string& name : names_by_rank) {
    const auto [entry, is_new] = host_of_name.try_emplace(name, sizes.size());
    if (is_new) sizes.push_back(0);
    const uint32_t host = entry->second;
    place_of_.push_back({host, sizes[host]++});
  }
  for (const uint32_t size : sizes) first_.push_back(first_.back() + size);
  rails_ = sizes.empty() ? 0 : *std::ranges::min_element(sizes);
  most_ranks_ = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
  by_host_.resize(place_of_.size());
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    by_host_[first_[HostOf(rank)] + LocalRankOf(rank)] = rank;
  }
}

// FNV-1a of the numbers of the ranks' hosts.
uint32_t HostMap::digest() const {
  uint32_t hash = 2'166'136'261u;
  for (const Place& place : place_of_) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (place.host >> shift & 0xff)) * 16'777'619u;
    }
  }
  const uint32_t folded = (hash >> 24 ^ hash) & 0xff'ffff;
  return folded == 0 ? 1 : folded;
}

std::vector<float> HostMap::Sizes() const {
  std::vector<float> sizes;
  for (uint32_t host = 0; host < hosts(); ++host) {
    sizes.push_back(static_cast<float>(RanksOn(host).size()));
  }
  return sizes;
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
