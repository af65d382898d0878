// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sent bytes are gathered as counted, and printed as perf/lab parses them.
#include "perf/common/comm_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/perf/one_rank_a_process.h"

namespace onebit::perf {
namespace {

using testing::Each;
using testing::IsEmpty;

TEST(CommStatsTest, EveryRankLearnsWhatEachHasSent) {
  const auto errors = RunOneRankAProcess(3, 1, [](Ranks& ranks) {
    std::vector<std::byte> bytes(10'000);
    ranks.Broadcast(bytes, 0);
    SentTotal mine;
    const std::vector<SentTotal> all = ranks.GatherFromAll([&](int rank) {
      mine = SentBy(ranks.state(rank).comm.get());
      return mine;
    });
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[static_cast<size_t>(ranks.first())].bytes, mine.bytes);
    EXPECT_EQ(all[static_cast<size_t>(ranks.first())].messages, mine.messages);
    EXPECT_GE(all[0].bytes, bytes.size());
    EXPECT_GT(all[0].messages, 0u);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(CommStatsTest, WritesALineForEachRank) {
  const SentTotal ranks[] = {{123, 4}, {0, 0}};
  EXPECT_EQ(SentText(ranks),
            "#   rank 0 sent 123 bytes in 4 messages\n"
            "#   rank 1 sent 0 bytes in 0 messages\n");
  const SentTotal hosts[] = {{.bytes = 123, .messages = 4},
                             {.bytes = 9, .messages = 2, .network_bytes = 7}};
  EXPECT_EQ(SentText(hosts),
            "#   rank 0 sent 123 bytes in 4 messages, 0 bytes of them to other hosts\n"
            "#   rank 1 sent 9 bytes in 2 messages, 7 bytes of them to other hosts\n");
}

}  // namespace
}  // namespace onebit::perf
