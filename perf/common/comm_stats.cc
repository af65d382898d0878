// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads counters and writes lines.
#include "perf/common/comm_stats.h"

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {

onebitCommStats_t StatsOf(onebitComm_t comm) {
  onebitCommStats_t stats{};
  stats.size = sizeof(stats);
  Check(onebitCommGetStats(comm, &stats), "onebitCommGetStats");
  return stats;
}

SentTotal SentBy(onebitComm_t comm) {
  const onebitCommStats_t stats = StatsOf(comm);
  return {stats.bytes_sent, stats.messages_sent, stats.native_calls};
}

std::string SentText(std::span<const SentTotal> ranks) {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("#   rank {} sent {} bytes in {} messages\n", rank, ranks[rank].bytes,
                        ranks[rank].messages);
  }
  return text;
}

}  // namespace onebit::perf
