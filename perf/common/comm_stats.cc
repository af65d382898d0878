// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads counters and writes lines.
#include "perf/common/comm_stats.h"

#include <algorithm>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {

onebitCommStats_t StatsOf(onebitComm_t comm) {
  onebitCommStats_t stats{};
  stats.size = sizeof(stats);
  Check(onebitCommGetStats(comm, &stats), "onebitCommGetStats");
  return stats;
}

onebitCompressorStats_t StatsOf(onebitCompressor_t compressor) {
  onebitCompressorStats_t stats{};
  stats.size = sizeof(stats);
  Check(onebitCompressorGetStats(compressor, &stats), "onebitCompressorGetStats");
  return stats;
}

SentTotal SentBy(onebitComm_t comm) {
  const onebitCommStats_t stats = StatsOf(comm);
  return {.bytes = stats.bytes_sent,
          .messages = stats.messages_sent,
          .network_bytes = stats.network_bytes,
          .native_calls = stats.native_calls,
          .two_level_calls = stats.two_level_calls};
}

std::string SentText(std::span<const SentTotal> ranks) {
  const bool has_network =
      std::ranges::any_of(ranks, [](const SentTotal& sent) { return sent.network_bytes != 0; });
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("#   rank {} sent {} bytes in {} messages", rank, ranks[rank].bytes,
                        ranks[rank].messages);
    if (has_network)
      text += fmt::format(", {} bytes of them to other hosts", ranks[rank].network_bytes);
    text += '\n';
  }
  return text;
}

}  // namespace onebit::perf
