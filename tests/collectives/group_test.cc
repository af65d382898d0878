// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Groups give the results of the same calls one by one, in few messages; after an error all or none
// of the calls count; and every rank learns which calls differ.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/optim.h"
#include "tests/collectives/group_case.h"

namespace onebit::testing {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// With these options some compressed calls take one exchange, and segments occur alone and in
// batches.
const CommOptions kMixed{
    .timeout_ms = 20'000, .one_exchange_elements = 2000, .segment_elements = 2000};
const CommOptions kSmallBatches{.timeout_ms = 20'000,
                                .one_exchange_elements = 2000,
                                .segment_elements = 2000,
                                .group_elements = 3500};
const CommOptions kThreads{.timeout_ms = 20'000, .compute_threads = 2};

using Change = std::function<void(GroupRank&, int rank, int round)>;

// Makes the calls on two groups of ranks, one by one and together, three times in a row.
void ExpectSameResults(CommGroup alone, CommGroup together, int ranks,
                       const std::vector<GroupCall>& calls, const Change& change) {
  const auto index = [](int rank) { return static_cast<size_t>(rank); };
  auto alone_ranks = RanksOf(alone, calls);
  auto together_ranks = RanksOf(together, calls);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round);
    for (int rank = 0; rank < ranks; ++rank) {
      for (GroupRank* one : {&alone_ranks[index(rank)], &together_ranks[index(rank)]}) {
        one->Fill(static_cast<uint32_t>(100 * round + rank));
        if (change) change(*one, rank, round);
      }
    }
    alone.Run([&](int rank) { EXPECT_EQ(alone_ranks[index(rank)].CallAll(), onebitSuccess); });
    together.Run([&](int rank) {
      EXPECT_EQ(together_ranks[index(rank)].CallGroup(), onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank);
      together_ranks[index(rank)].ExpectSameAs(alone_ranks[index(rank)]);
    }
  }
  const onebitCommStats_t one_by_one = StatsOf(alone.comm(0));
  const onebitCommStats_t grouped = StatsOf(together.comm(0));
  EXPECT_EQ(grouped.dense_calls, one_by_one.dense_calls);
  EXPECT_EQ(grouped.compressed_calls, one_by_one.compressed_calls);
  EXPECT_EQ(grouped.nonfinite_calls, one_by_one.nonfinite_calls);
  EXPECT_EQ(grouped.two_level_calls, one_by_one.two_level_calls);
  EXPECT_EQ(grouped.logical_bytes, one_by_one.logical_bytes);
  EXPECT_LE(grouped.messages_sent, one_by_one.messages_sent);
}

class GroupResultsTest : public ::testing::TestWithParam<int> {
 protected:
  void ExpectSameResults(const std::vector<GroupCall>& calls, const CommOptions& options,
                         const Change& change = {}) {
    testing::ExpectSameResults(CommGroup(GetParam(), options), CommGroup(GetParam(), options),
                               GetParam(), calls, change);
  }
};

TEST_P(GroupResultsTest, AreThoseOfTheCallsOneByOne) {
  std::mt19937 random(5);
  for (int mix = 0; mix < 4; ++mix) {
    SCOPED_TRACE(::testing::Message() << "mix " << mix);
    ExpectSameResults(RandomCalls(25, GetParam(), random), kMixed);
  }
}

TEST_P(GroupResultsTest, AreThoseOfTheCallsOneByOneInSeveralBatches) {
  std::mt19937 random(6);
  ExpectSameResults(RandomCalls(40, GetParam(), random), kSmallBatches);
}

TEST_P(GroupResultsTest, AreThoseOfTheCallsOneByOneWithComputeThreads) {
  ExpectSameResults({Ef(60'000), Dense(50'000), Ef(20'000), Ef(100)}, kThreads);
}

GroupCall Sparse(size_t count, onebitCodec_t codec, onebitMode_t mode, int hops) {
  GroupCall call = Ef(count);
  call.config->codec = codec;
  call.config->mode = mode;
  call.config->block = 320;
  call.config->hops = hops;
  return call;
}

TEST_P(GroupResultsTest, OfSparseCodecsAreThoseOfTheCallsOneByOne) {
  std::vector<GroupCall> calls = {Dense(1000), Ef(3000)};
  for (const onebitCodec_t codec : {onebitCodecTopk, onebitCodecRandk}) {
    for (const int hops : {1, 2}) {
      for (const size_t count : {1, 700, 5000}) {
        calls.push_back(Sparse(count, codec, onebitModeEf, hops));
        calls.push_back(Sparse(count, codec, onebitModePlain, hops));
        calls.back().type = kernels::DataType::kBf16;
        calls.back().config->values = onebitValuesFloat32;
      }
      calls.push_back(Ef(500));
      calls.back().config->codec = onebitCodecInt8;
    }
  }
  for (const CommOptions& options : {kMixed, kSmallBatches, kThreads}) {
    ExpectSameResults(calls, options, [](GroupRank& one, int rank, int round) {
      constexpr size_t kEf = 4, kPlain = 5;  // of 700 elements
      if (rank != 0 || round != 1) return;
      one.SetInput(kEf, 400, std::numeric_limits<float>::quiet_NaN());
      one.SetInput(kPlain, 400, std::numeric_limits<float>::quiet_NaN());
    });
  }
}

TEST_P(GroupResultsTest, ANanIsThatOfItsCallAlone) {
  std::vector<GroupCall> calls = {Ef(3000), Dense(10), Ef(5000), Ef(100), Ef(70)};
  calls[2].config->transactional = 0;
  ExpectSameResults(calls, kMixed, [](GroupRank& one, int rank, int round) {
    if (rank == 0 && round == 1) {
      one.SetInput(0, 2999, std::numeric_limits<float>::quiet_NaN());
      one.SetInput(3, 99, std::numeric_limits<float>::infinity());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupResultsTest, ::testing::Values(1, 2, 3, 4, 5));

// Calls of two levels share messages with each other, and with those of one level.
class GroupOnHostsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void ExpectSameResults(const std::vector<GroupCall>& calls, CommOptions options,
                         const Change& change = {}) {
    options.two_level_bytes = 4096;
    const std::vector<CommOptions> on_hosts = OnHosts(GetParam(), options);
    testing::ExpectSameResults(CommGroup(on_hosts), CommGroup(on_hosts),
                               static_cast<int>(on_hosts.size()), calls, change);
  }
};

TEST_P(GroupOnHostsTest, ResultsAreThoseOfTheCallsOneByOne) {
  const int ranks = static_cast<int>(std::string(GetParam()).size());
  std::mt19937 random(7);
  for (const CommOptions& options : {kMixed, kSmallBatches, kThreads}) {
    ExpectSameResults(RandomCalls(25, ranks, random), options);
  }
}

TEST_P(GroupOnHostsTest, CallsOfTwoLevelsAloneShareMessages) {
  std::vector<GroupCall> calls = {Ef(30'000), Dense(20'000), Ef(9000), Dense(5000)};
  calls[2].config->codec = onebitCodecFp4;
  calls[3].op = onebitSum;
  calls[3].is_in_place = true;
  ExpectSameResults(calls, kMixed);
  ExpectSameResults(calls, kThreads, [](GroupRank& one, int rank, int round) {
    if (rank == 1 && round == 1) one.SetInput(2, 8999, std::numeric_limits<float>::infinity());
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, GroupOnHostsTest,
                         ::testing::Values("aabb", "abab", "aab", "aaaabbc"),
                         [](const auto& info) { return std::string(info.param); });

// In exchanges 1 and 4 to the other rank of the host, in 2 and 3 to that of the rail.
TEST(GroupTest, SendsOneMessageInEachExchangeOfTwoLevels) {
  CommGroup group(OnHosts("aabb", {.timeout_ms = 20'000, .two_level_bytes = 0}));
  auto ranks = RanksOf(group, {Ef(20'000), Dense(20'000), Ef(30'000)});
  group.Run(
      [&](int rank) { EXPECT_EQ(ranks[static_cast<size_t>(rank)].CallGroup(), onebitSuccess); });
  EXPECT_EQ(StatsOf(group.comm(0)).two_level_calls, 3u);
  EXPECT_EQ(StatsOf(group.comm(0)).messages_sent, 4u);
}

TEST(GroupTest, SendsOneMessageToEachPeerInEachExchange) {
  std::vector<GroupCall> calls(50, Ef(4000));  // two exchanges
  calls.push_back(Dense(100));
  CommGroup group(3);
  auto ranks = RanksOf(group, calls);
  group.Run(
      [&](int rank) { EXPECT_EQ(ranks[static_cast<size_t>(rank)].CallGroup(), onebitSuccess); });
  EXPECT_EQ(StatsOf(group.comm(0)).messages_sent, 4u);
}

TEST(GroupTest, LargeCallsAndGroupsOfOneTravelAsEver) {
  const CommOptions kSmall{.timeout_ms = 20'000, .group_elements = 4000};
  for (const CommOptions& options : {kPatient, kSmall}) {
    CommGroup alone(2, options), together(2, options);
    auto alone_ranks = RanksOf(alone, {Dense(5000), Dense(5001)});
    auto together_ranks = RanksOf(together, {Dense(5000), Dense(5001)});
    alone.Run([&](int r) { alone_ranks[static_cast<size_t>(r)].CallAll(); });
    together.Run([&](int r) {
      GroupRank& rank = together_ranks[static_cast<size_t>(r)];
      if (*options.group_elements < 5000) {
        EXPECT_EQ(rank.CallGroup(), onebitSuccess);
        return;
      }
      for (size_t call = 0; call < 2; ++call) {
        onebitGroupStart();
        EXPECT_EQ(rank.Call(call), onebitSuccess);
        EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
      }
    });
    EXPECT_EQ(StatsOf(together.comm(0)).messages_sent, StatsOf(alone.comm(0)).messages_sent);
    EXPECT_EQ(StatsOf(together.comm(0)).bytes_sent, StatsOf(alone.comm(0)).bytes_sent);
  }
}

TEST(GroupTest, OnlyTheOutermostEndMakesTheCalls) {
  CommGroup group(2);
  auto ranks = RanksOf(group, {Dense(10), Dense(20)});
  group.Run([&](int r) {
    GroupRank& rank = ranks[static_cast<size_t>(r)];
    EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    EXPECT_EQ(rank.Call(0), onebitSuccess);
    EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    EXPECT_EQ(rank.Call(1), onebitSuccess);
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
    EXPECT_EQ(StatsOf(group.comm(r)).messages_sent, 0u);
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
    EXPECT_EQ(StatsOf(group.comm(r)).dense_calls, 2u);
  });
}

TEST(GroupTest, MayBeEmpty) {
  EXPECT_EQ(onebitGroupStart(), onebitSuccess);
  EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
}

TEST(GroupTest, EndWithoutStartIsInvalidUsage) {
  EXPECT_EQ(onebitGroupEnd(), onebitInvalidUsage);
  EXPECT_TRUE(Contains(onebitGetLastError(nullptr), "onebitGroupStart"));
}

TEST(GroupTest, AnErrorOfACallIsTheGroupsAndNothingIsSent) {
  CommGroup group(2);
  auto ranks = RanksOf(group, {Ef(100), Dense(10)});
  group.Run([&](int r) {
    GroupRank& rank = ranks[static_cast<size_t>(r)];
    rank.Fill(1);
    onebitGroupStart();
    EXPECT_EQ(rank.Call(0), onebitSuccess);
    EXPECT_EQ(onebitAllReduce(nullptr, nullptr, 10, onebitFloat32, onebitSum, nullptr,
                              group.comm(r), nullptr),
              onebitInvalidArgument);
    const std::string text = onebitGetLastError(nullptr);
    EXPECT_EQ(rank.Call(1), onebitSuccess);
    EXPECT_EQ(onebitGroupEnd(), onebitInvalidArgument);
    EXPECT_EQ(onebitGetLastError(nullptr), text);
    EXPECT_EQ(StatsOf(group.comm(r)).messages_sent, 0u);
    EXPECT_EQ(StatsOf(rank.compressor(0)).epoch, 0u);
    EXPECT_EQ(rank.CallGroup(), onebitSuccess) << "the next group has nothing of it";
  });
  EXPECT_EQ(StatsOf(group.comm(0)).compressed_calls, 1u);
}

TEST(GroupTest, ACompressorHasOneCallInAGroup) {
  CommGroup group(1);
  auto ranks = RanksOf(group, {Ef(100)});
  onebitGroupStart();
  EXPECT_EQ(ranks[0].Call(0), onebitSuccess);
  EXPECT_EQ(ranks[0].Call(0), onebitInvalidUsage);
  EXPECT_TRUE(Contains(onebitGetLastError(nullptr), "already has a call in this group"));
  EXPECT_EQ(onebitCompressorReset(ranks[0].compressor(0)), onebitInvalidUsage);
  EXPECT_EQ(onebitGroupEnd(), onebitInvalidUsage);
  EXPECT_EQ(onebitCompressorReset(ranks[0].compressor(0)), onebitSuccess);
}

TEST(GroupTest, ACommunicatorWithCallsInAGroupIsNotDestroyed) {
  CommGroup group(1);
  auto ranks = RanksOf(group, {Dense(100)});
  onebitGroupStart();
  EXPECT_EQ(ranks[0].Call(0), onebitSuccess);
  EXPECT_EQ(group.Destroy(0), onebitInvalidUsage);
  EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
}

TEST(GroupTest, OptimizersStepOutsideGroups) {
  CommGroup group(1);
  std::vector<float> parameters(8), gradients(8);
  onebitOptimizer_t optimizer = nullptr;
  ASSERT_EQ(onebitOptimizerCreate(&optimizer, group.comm(0), 8, parameters.data(), nullptr),
            onebitSuccess);
  const auto step = [&] {
    return onebitOptimizerStep(optimizer, gradients.data(), onebitFloat32, 0.1, 1, 0, nullptr,
                               nullptr);
  };
  onebitGroupStart();
  EXPECT_EQ(step(), onebitInvalidUsage);
  EXPECT_TRUE(Contains(onebitGetLastError(nullptr), "onebitGroupEnd"));
  EXPECT_EQ(onebitGroupEnd(), onebitSuccess);
  EXPECT_EQ(step(), onebitSuccess);
  EXPECT_EQ(onebitOptimizerDestroy(optimizer), onebitSuccess);
}

// One rank does not take part. The abort comes while the others are inside their groups.
TEST(GroupTest, AnAbortEndsItAndLeavesAllResidualsAsTheyWere) {
  const CommOptions kBatches{.timeout_ms = 20'000, .group_elements = 1000};
  CommGroup group(3, kBatches);
  const std::vector<GroupCall> calls = {Ef(900), Ef(5000), Ef(100), Dense(70), Ef(800)};
  auto ranks = RanksOf(group, calls);
  group.Run([&](int r) { EXPECT_EQ(ranks[static_cast<size_t>(r)].CallGroup(), onebitSuccess); });
  std::vector<std::vector<Residuals>> before;
  for (const GroupRank& rank : ranks) before.push_back(rank.AllResiduals());
  const auto outcomes = group.Call([&](int r) {
    GroupRank& rank = ranks[static_cast<size_t>(r)];
    rank.Fill(static_cast<uint32_t>(50 + r));
    if (r != 2) return rank.CallGroup();
    // The first batch is a single call.
    EXPECT_EQ(rank.Call(0), onebitSuccess) << onebitGetLastError(nullptr);
    return onebitCommAbort(group.comm(r));
  });
  for (int r = 0; r < 2; ++r) {
    const auto rank = static_cast<size_t>(r);
    EXPECT_NE(outcomes[rank].result, onebitSuccess);
    EXPECT_FALSE(HasRunIntoDeadline(outcomes[rank])) << outcomes[rank].text;
    EXPECT_EQ(ranks[rank].AllResiduals(), before[rank]) << "rank " << r;
    EXPECT_EQ(StatsOf(group.comm(r)).failed_calls, calls.size());
  }
}

// One thread makes the calls of all ranks, and those of a second communicator.
class OneThreadTest : public ::testing::TestWithParam<int> {};

TEST_P(OneThreadTest, MakesTheCallsOfAllRanks) {
  const int n = GetParam();
  std::mt19937 random(9);
  const std::vector<GroupCall> calls = RandomCalls(12, n, random);
  CommGroup alone(n, kMixed), first(n, kMixed), second(n, kSmallBatches);
  auto alone_ranks = RanksOf(alone, calls);
  auto first_ranks = RanksOf(first, calls);
  auto second_ranks = RanksOf(second, calls);
  for (int round = 0; round < 3; ++round) {
    for (size_t r = 0; r < first_ranks.size(); ++r) {
      for (GroupRank* rank : {&alone_ranks[r], &first_ranks[r], &second_ranks[r]}) {
        rank->Fill(static_cast<uint32_t>(10 * round) + static_cast<uint32_t>(r));
      }
    }
    alone.Run([&](int r) { alone_ranks[static_cast<size_t>(r)].CallAll(); });
    onebitGroupStart();
    for (size_t call = 0; call < calls.size(); ++call) {
      for (auto* ranks : {&first_ranks, &second_ranks}) {
        for (GroupRank& rank : *ranks) ASSERT_EQ(rank.Call(call), onebitSuccess);
      }
    }
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    for (size_t r = 0; r < first_ranks.size(); ++r) {
      first_ranks[r].ExpectSameAs(alone_ranks[r]);
      second_ranks[r].ExpectSameAs(alone_ranks[r]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, OneThreadTest, ::testing::Values(1, 2, 3, 4));

TEST(OneThreadTest, FindsWhereItsRanksDiffer) {
  CommGroup group(3);
  std::vector<std::vector<float>> values(3, std::vector<float>(20));
  onebitGroupStart();
  for (int rank = 0; rank < 3; ++rank) {
    for (size_t count : {size_t{10}, size_t{rank == 2 ? 11u : 12u}}) {
      float* data = values[static_cast<size_t>(rank)].data();
      EXPECT_EQ(onebitAllReduce(data, data, count, onebitFloat32, onebitSum, nullptr,
                                group.comm(rank), nullptr),
                onebitSuccess);
    }
  }
  EXPECT_EQ(onebitGroupEnd(), onebitMismatch);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(onebitBarrier(group.comm(rank), nullptr), onebitMismatch);
  }
}

struct Difference {
  const char* name;
  std::vector<GroupCall> calls;
  std::vector<GroupCall> odd_calls;
  const char* text;
};
std::ostream& operator<<(std::ostream& out, const Difference& d) { return out << d.name; }

class GroupMismatchTest : public ::testing::TestWithParam<Difference> {};

TEST_P(GroupMismatchTest, IsAnErrorOfEveryRankAndChangesNoResidual) {
  const Difference& d = GetParam();
  for (const auto& [n, odd] : {std::pair(2, 0), std::pair(2, 1), std::pair(4, 2)}) {
    SCOPED_TRACE(::testing::Message() << "rank " << odd << " of " << n << " differs");
    CommGroup group(n);
    std::vector<GroupRank> ranks;
    for (int r = 0; r < n; ++r) {
      ranks.emplace_back(group.comm(r), r == odd ? d.odd_calls : d.calls);
      ranks.back().Fill(static_cast<uint32_t>(r));
    }
    const auto outcomes =
        group.Call([&](int r) { return ranks[static_cast<size_t>(r)].CallGroup(); });
    for (int r = 0; r < n; ++r) {
      const Outcome& outcome = outcomes[static_cast<size_t>(r)];
      EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, d.text)) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "rank " + std::to_string(odd))) << outcome.text;
      const GroupRank& rank = ranks[static_cast<size_t>(r)];
      EXPECT_EQ(rank.Epochs(), std::vector<uint64_t>(rank.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GroupMismatchTest,
    ::testing::Values(Difference{"Order",
                                 {Ef(100), Dense(50), Dense(60)},
                                 {Ef(100), Dense(60), Dense(50)},
                                 "a different call 2 of 3 in the group"},
                      Difference{"Count",
                                 {Ef(100), Dense(50), Dense(60)},
                                 {Ef(100), Dense(50), Dense(61)},
                                 "a different call 3 of 3 in the group"},
                      Difference{"Mode",
                                 {Ef(100), Dense(50)},
                                 {Dense(100), Dense(50)},
                                 "a different call 1 of 2 in the group"},
                      Difference{"Length",
                                 {Ef(100), Dense(50)},
                                 {Ef(100), Dense(50), Dense(50)},
                                 "calls in the group"},
                      Difference{"OneCall", {Ef(100), Dense(50)}, {Ef(100)}, "collective"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onebit::testing
