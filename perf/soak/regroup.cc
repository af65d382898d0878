// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Until the library splits communicators itself: ranks tell each other colors and make new ones.
#include "perf/soak/regroup.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "perf/common/error.h"
#include "perf/common/rank_exchange.h"
#include "perf/soak/plan.h"

namespace onebit::soak {
namespace {

struct Wish {
  int color;
  int key;
  int rank;
  int pid;
};

}  // namespace

onebitComm_t Split(onebitComm_t comm, int color, int key) {
  const int me = perf::RankOf(comm);
  const std::vector<Wish> wishes = perf::GatherRecords(comm, Wish{color, key, me, getpid()});
  const bool are_threads = std::all_of(wishes.begin(), wishes.end(),
                                       [&](const Wish& wish) { return wish.pid == wishes[0].pid; });
  std::vector<Wish> group;
  for (const Wish& wish : wishes) {
    if (wish.color == color) group.push_back(wish);
  }
  std::sort(group.begin(), group.end(), [](const Wish& a, const Wish& b) {
    return a.key != b.key ? a.key < b.key : a.rank < b.rank;
  });
  size_t place = 0;
  while (group[place].rank != me) ++place;
  struct Offer {
    onebitUniqueId id;
    onebitComm_t comms[16];
  } offer = {};
  const bool is_leader = color != kNoColor && place == 0;
  const auto size = static_cast<int>(group.size());
  if (is_leader && are_threads) {
    perf::Check(onebitCommInitAll(offer.comms, size, nullptr), "onebitCommInitAll");
  } else if (is_leader) {
    perf::Check(onebitGetUniqueId(&offer.id), "onebitGetUniqueId");
  }
  const std::vector<Offer> offers = perf::GatherRecords(comm, offer);
  if (color == kNoColor) return nullptr;
  const Offer& mine = offers[static_cast<size_t>(group[0].rank)];
  if (are_threads) return mine.comms[place];
  onebitComm_t joined = nullptr;
  perf::Check(onebitCommInitRank(&joined, size, mine.id, static_cast<int>(place)),
              "onebitCommInitRank");
  return joined;
}

onebitComm_t Shrink(onebitComm_t, std::span<const int>) {
  throw perf::ToolError("communicators cannot be shrunk yet");
}

}  // namespace onebit::soak
