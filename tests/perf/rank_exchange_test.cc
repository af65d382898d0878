// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Records and bytes arrive unchanged, and hashes distinguish buffers.
#include "perf/common/rank_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/perf/one_rank_a_process.h"

namespace onebit::perf {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 3;

struct Record {
  double number;
  uint64_t bits;
  char odd[5];
};

TEST(RankExchangeTest, EveryRankSeesTheRecordsOfAll) {
  // A signalling NaN, which copying as a number might turn into a quiet one.
  constexpr uint64_t kBits = 0x7fa00000'7fa00001;
  const auto errors = RunOneRankAProcess(kRanks, 1, [](Ranks& ranks) {
    const auto records = ranks.GatherFromAll([](int rank) {
      return Record{
          .number = rank + 0.5, .bits = kBits + static_cast<uint64_t>(rank), .odd = "abc"};
    });
    ASSERT_EQ(records.size(), size_t{kRanks});
    for (int rank = 0; rank < kRanks; ++rank) {
      const Record& record = records[static_cast<size_t>(rank)];
      EXPECT_EQ(record.number, rank + 0.5);
      EXPECT_EQ(record.bits, kBits + static_cast<uint64_t>(rank));
      EXPECT_STREQ(record.odd, "abc");
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RankExchangeTest, BroadcastsAnyNumberOfBytesFromAnyRank) {
  const auto errors = RunOneRankAProcess(kRanks, 1, [](Ranks& ranks) {
    for (size_t size : {0, 1, 3, 4, 7, 4096, 100'003}) {
      for (int root = 0; root < kRanks; ++root) {
        for (size_t offset : {0, 1}) {
          std::vector<std::byte> bytes(size + offset + 1);
          const auto mark = std::byte{static_cast<uint8_t>(17 + root)};
          if (ranks.is_local(root)) std::fill(bytes.begin(), bytes.end(), mark);
          ranks.Broadcast(std::span(bytes).subspan(offset, size), root);
          for (size_t i = 0; i < size; ++i) ASSERT_EQ(bytes[offset + i], mark) << size << " " << i;
          if (ranks.is_local(root)) continue;
          ASSERT_EQ(bytes[offset + size], std::byte{0});  // nothing beyond was touched
        }
      }
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RankExchangeTest, PlacesAreThoseOfAllRanks) {
  const auto errors = RunOneRankAProcess(kRanks, 1, [](Ranks& ranks) {
    const std::vector<RankInfo> infos = ranks.GatherInfo();
    ASSERT_EQ(infos.size(), size_t{kRanks});
    EXPECT_EQ(infos[2].host, HostName().substr(0, 63));
    EXPECT_GT(infos[2].pid, 0);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RankExchangeTest, AFailureElsewhereEndsAll) {
  const auto errors = RunOneRankAProcess(kRanks, 1, [](Ranks& ranks) {
    ranks.GatherFromAll([](int rank) {
      if (rank == 1) throw ToolError("disk full");
      return rank;
    });
  });
  EXPECT_EQ(errors[1], "rank 1: disk full");
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1"));
}

TEST(HashBytesTest, TellsBuffersApart) {
  std::vector<std::byte> bytes(257);
  std::set<uint64_t> firsts, seconds;
  const auto add = [&](std::span<const std::byte> some) {
    const BytesHash hash = HashBytes(some);
    EXPECT_TRUE(firsts.insert(hash.first).second || some.empty());
    EXPECT_TRUE(seconds.insert(hash.second).second);
  };
  add(bytes);
  for (std::byte& byte : bytes) {  // any one bit, anywhere
    for (int bit = 0; bit < 8; ++bit) {
      byte = std::byte{1} << bit;
      add(bytes);
      byte = std::byte{0};
    }
  }
  EXPECT_NE(HashBytes({bytes.data(), 8}), HashBytes({bytes.data(), 16}));
  EXPECT_NE(HashBytes({bytes.data(), 1}), HashBytes({bytes.data(), 2}));
  EXPECT_EQ(HashBytes({bytes.data(), 9}), HashBytes({bytes.data() + 1, 9}));
}

}  // namespace
}  // namespace onebit::perf
