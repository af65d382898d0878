// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Selects an algorithm. A pure function of the key, so that all ranks choose alike.
#include "plan/algorithms.h"

namespace onebit {
namespace {

// One exchange saves the latency of another, but sends all bits to each of n - 1 peers instead of
// 2/n of them. An exchange of small messages between 4 hosts that share two cores took 0.15 to
// 0.4 ms over TCP (perf/lab at 100 Mbit/s and 1 Gbit/s), most of it for want of cores. In 0.12 ms,
// a little less than that, a link of 100 Mbit/s, the slowest that matters to us, carries this many
// bits.
constexpr double kBitsOfAnExchange = 12'288;
// Every rank does the server's work for the whole tensor, n times the work of two exchanges. At two
// ranks, which send no more bits, this sets the limit: one exchange is faster up to 1,000 elements
// over shared memory and up to 10,000 over TCP, and what it costs or saves in between is a few
// microseconds.
constexpr double kMostElements = 8192;

// Two levels send each byte through a host's links once instead of once per rank, but take two more
// exchanges, and pass each byte through the host's memory twice more.
constexpr uint64_t kBytesOfTwoLevels = 65'536;
// A rank of a rail holds the elements of its part of every rank on its host: all of them, if the
// smallest host has one rank.
constexpr uint32_t kMostRanksPerRail = 4;

}  // namespace

bool UsesOneExchange(size_t count, uint32_t ranks, const CommOptions& options) {
  if (ranks < 2) return false;
  if (options.one_exchange_elements.has_value()) return count <= *options.one_exchange_elements;
  const double n = ranks;
  const double more_bits_per_element = (n - 1) * (1 - 2 / n);
  const auto elements = static_cast<double>(count);
  return elements <= kMostElements && elements * more_bits_per_element <= kBitsOfAnExchange;
}

// The root sends n - 1 copies in one exchange, and one copy in two.
bool UsesOneExchangeToBroadcast(const PlanKey& key, uint32_t ranks) {
  const auto bits =
      static_cast<double>(8 * kernels::BytesOf(key.type)) * static_cast<double>(key.count);
  return ranks == 2 || (static_cast<double>(ranks) - 2) * bits <= kBitsOfAnExchange;
}

bool UsesTwoLevels(size_t bytes, const HostMap& hosts, const CommOptions& options) {
  if (!hosts.has_levels()) return false;
  if (options.two_level_bytes.has_value()) return bytes >= *options.two_level_bytes;
  return bytes >= kBytesOfTwoLevels && hosts.most_ranks() <= kMostRanksPerRail * hosts.rails();
}

Plan SelectPlan(const PlanKey& key, uint32_t rank, const HostMap& hosts, size_t segment_elements) {
  const uint32_t ranks = hosts.ranks();
  if (key.collective == Collective::kBarrier) return PlanBarrier(key, rank, ranks);
  if (key.collective == Collective::kAllToAllv) return PlanAllToAllv(key, rank, ranks);
  if (key.is_pairs()) return PlanSendReceive(key, rank, ranks);
  if (ranks == 1) return PlanCopy(key);
  if (key.is_native) return PlanNative(key, rank, ranks);
  switch (key.collective) {
    case Collective::kBarrier:
    case Collective::kGroup:  // MergePlans
      break;
    case Collective::kBroadcast:
      return key.has_two_levels ? PlanBroadcastTwoLevels(key, rank, hosts, segment_elements)
                                : PlanBroadcast(key, rank, ranks, segment_elements);
    case Collective::kAllReduce:
      if (key.is_one_exchange && key.codec.is_sparse()) {
        return PlanAllReduceOneHop(key, rank, ranks, segment_elements);
      }
      if (key.is_one_exchange) return PlanAllReduceOneExchange(key, rank, ranks);
      if (key.has_two_levels) return PlanAllReduceTwoLevels(key, rank, hosts, segment_elements);
      return PlanAllReduceSra(key, rank, ranks, segment_elements);
    case Collective::kReduceScatter:
      return key.has_two_levels ? PlanReduceScatterTwoLevels(key, rank, hosts, segment_elements)
                                : PlanReduceScatter(key, rank, ranks, segment_elements);
    case Collective::kAllGather:
      return PlanAllGather(key, rank, hosts, segment_elements);
    case Collective::kAllToAll:
      return PlanAllToAll(key, rank, ranks, segment_elements);
    case Collective::kAllToAllv:
    case Collective::kSendRecv:
      break;
  }
  return PlanCopy(key);  // unreachable: every collective has returned
}

}  // namespace onebit
