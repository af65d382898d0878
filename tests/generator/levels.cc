// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/levels.h"

#include <algorithm>
#include <string>

#include "perf/common/allreduce_model.h"
#include "plan/algorithms.h"

namespace onebit::testing::generator {
namespace {

constexpr int64_t kDefaultAlignment = 64;

uint32_t HostOf(int64_t pattern, int64_t rank, int64_t ranks) {
  switch (pattern) {
    case kPairs:
      return static_cast<uint32_t>(rank / 2);
    case kTakeTurns:
      return static_cast<uint32_t>(rank % 2);
    case kHalves: {
      uint32_t host = 0;
      for (int64_t left = ranks; rank >= (left + 1) / 2; ++host) {
        rank -= (left + 1) / 2;
        left /= 2;
      }
      return host;
    }
    case kFirstAlone:
      return rank == 0 ? 0 : 1;
    case kMirrored:
      return static_cast<uint32_t>(std::min(rank, ranks - 1 - rank));
    case kApart:
      return static_cast<uint32_t>(rank);
    default:
      return 0;
  }
}

HostMap MapOf(const Case& c) {
  std::vector<std::string> names;
  for (const uint32_t host : HostsOf(c)) names.push_back(std::to_string(host));
  return HostMap(names);
}

bool HasTwoLevelsBySize(const Case& c, const TensorCase& t, const HostMap& hosts) {
  // A mask has the elements of the larger buffer.
  const size_t elements = static_cast<size_t>(t.count) * t.MaskParts(static_cast<size_t>(c.ranks));
  return UsesTwoLevels(elements * BytesOfType(static_cast<int>(t.type)), hosts,
                       {.two_level_bytes = Chosen(c.two_level_bytes)});
}

// A chunk of an allreduce.
model::ChunkRange ChunkOf(const TensorCase& t, size_t chunks, size_t chunk) {
  const int64_t alignment = t.alignment == kDefault ? kDefaultAlignment : t.alignment;
  return model::ChunkOf(static_cast<size_t>(t.count), chunks, static_cast<size_t>(alignment),
                        chunk);
}

}  // namespace

std::vector<uint32_t> HostsOf(const Case& c) {
  std::vector<uint32_t> hosts;
  for (int64_t rank = 0; rank < c.ranks; ++rank) hosts.push_back(HostOf(c.hosts, rank, c.ranks));
  return hosts;
}

bool HasLevels(const Case& c) { return MapOf(c).has_levels(); }

bool CanHaveLevels(const TensorCase& t) {
  return t.reduces() || t.collective == onebitCollectiveAllGather || t.collective == kBroadcast;
}

bool TakesOneExchange(const Case& c, const TensorCase& t) {
  if (!t.is_compressed() || t.collective != onebitCollectiveAllReduce) return false;
  if (t.is_sparse()) return t.hops != 2;
  return UsesOneExchange(static_cast<size_t>(t.count), static_cast<uint32_t>(c.ranks),
                         {.one_exchange_elements = Chosen(c.one_exchange)});
}

int64_t LevelsOf(const Case& c, const TensorCase& t) {
  const HostMap hosts = MapOf(c);
  if (!hosts.has_levels() || !CanHaveLevels(t) || TakesOneExchange(c, t)) return 1;
  if (t.levels != 0) return t.levels;
  // A rank knows the scale of its own part only.
  if (t.is_compressed() && t.block == ONEBIT_BLOCK_TENSOR) return 1;
  return HasTwoLevelsBySize(c, t, hosts) ? 2 : 1;
}

int64_t LevelsOfPriming(const Case& c, const TensorCase& t) {
  const HostMap hosts = MapOf(c);
  return hosts.has_levels() && CanHaveLevels(t) && HasTwoLevelsBySize(c, t, hosts) ? 2 : 1;
}

model::HostLayout HostsOfReduction(const Case& c, const TensorCase& t) {
  if (!t.reduces() || LevelsOf(c, t) == 1) return {};
  return model::HostLayout(HostsOf(c));
}

std::vector<size_t> WorkersOf(const TensorCase& t, const model::HostLayout& hosts, size_t host) {
  const auto count = static_cast<size_t>(t.count);
  std::vector<size_t> workers;
  if (t.collective == onebitCollectiveReduceScatter) {
    for (size_t part = 0; part < hosts.ranks(); ++part) {
      workers.insert(workers.end(), count, hosts.PartnerOn(host, part));
    }
    return workers;
  }
  for (size_t chunk = 0; chunk < hosts.chunks(); ++chunk) {
    workers.insert(workers.end(), ChunkOf(t, hosts.chunks(), chunk).size(),
                   hosts.WorkerOf(host, chunk));
  }
  return workers;
}

std::vector<size_t> ServersOf(const Case& c, const TensorCase& t) {
  // With one exchange all ranks serve, and the first one counts.
  if (TakesOneExchange(c, t)) return std::vector<size_t>(static_cast<size_t>(t.count), 0);
  const model::HostLayout hosts = HostsOfReduction(c, t);
  const size_t chunks = hosts.empty() ? static_cast<size_t>(c.ranks) : hosts.chunks();
  std::vector<size_t> servers;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    servers.insert(servers.end(), ChunkOf(t, chunks, chunk).size(),
                   hosts.empty() ? chunk : hosts.WorkerOf(chunk % hosts.hosts(), chunk));
  }
  return servers;
}

}  // namespace onebit::testing::generator
