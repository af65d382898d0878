// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives with a part for every rank give the same results in a group, or on a stream, as one
// by one.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/chunk_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

struct PartsCall {
  onebitCollective_t collective;
  std::optional<onebitMode_t> mode;  // none: dense
  size_t count;
};

// Two all-to-all-v without a compressor share a plan.
const std::vector<PartsCall> kCalls = {
    {onebitCollectiveReduceScatter, onebitModeEf, 100},
    {onebitCollectiveAllReduce, onebitModeEf, 500},
    {onebitCollectiveAllGather, onebitModeEf, 77},
    {onebitCollectiveAllToAllv, {}, 9},
    {onebitCollectiveAllToAll, onebitModeEf, 64},
    {onebitCollectiveReduceScatter, onebitModePlain, 1},
    {onebitCollectiveAllToAllv, {}, 300},
    {onebitCollectiveAllToAllv, onebitModePlain, 41},
    {onebitCollectiveAllGather, {}, 13},
    {onebitCollectiveAllToAll, {}, 5},
    {onebitCollectiveReduceScatter, {}, 31},
    {onebitCollectiveAllGather, onebitModePlain, 0},
};

// The calls of one rank.
class PartsRank {
 public:
  explicit PartsRank(onebitComm_t comm) : comm_(comm) {
    onebitCommCount(comm, &ranks_);
    for (const PartsCall& call : kCalls) {
      compressors_.emplace_back();
      outputs_.emplace_back(call.count * static_cast<size_t>(ranks_));
      inputs_.emplace_back(call.count * static_cast<size_t>(ranks_));
      if (!call.mode) continue;
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.mode = *call.mode;
      config.collective = call.collective;
      config.block = 64;
      const size_t count = call.collective == onebitCollectiveAllToAllv ? 0 : call.count;
      compressors_.back() = NewCompressor(comm, count, onebitFloat32, config);
    }
  }

  void Fill(int round) {
    int rank = 0;
    onebitCommUserRank(comm_, &rank);
    for (size_t call = 0; call < inputs_.size(); ++call) {
      for (size_t i = 0; i < inputs_[call].size(); ++i) {
        inputs_[call][i] = std::sin(static_cast<float>(i * 13 + call * 7) +
                                    static_cast<float>(rank * 3 + round * 5));
      }
    }
  }
  void SpoilInput(size_t call) { inputs_[call][0] = INFINITY; }

  onebitResult_t CallAll(onebitStream_t stream = nullptr) {
    onebitResult_t result = onebitSuccess;
    for (size_t i = 0; i < kCalls.size() && result == onebitSuccess; ++i) {
      if (kCalls[i].collective == onebitCollectiveAllToAllv) {
        result = CallPairs(i, stream);
        continue;
      }
      result = MakeCall(kCalls[i].collective,
                        {.send = inputs_[i].data(),
                         .receive = outputs_[i].data(),
                         .count = kCalls[i].count,
                         .compressor = compressors_[i].get(),
                         .stream = stream},
                        comm_);
    }
    return result;
  }

  void ExpectSameAs(const PartsRank& other) const {
    for (size_t i = 0; i < kCalls.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "call " << i);
      EXPECT_TRUE(std::equal(outputs_[i].begin(), outputs_[i].end(), other.outputs_[i].begin(),
                             [](float a, float b) { return a == b || (a != a && b != b); }));
      if (compressors_[i] == nullptr) continue;
      EXPECT_TRUE(ResidualsOf(compressors_[i].get()) == ResidualsOf(other.compressors_[i].get()));
      EXPECT_EQ(StatsOf(compressors_[i].get()).epoch, StatsOf(other.compressors_[i].get()).epoch);
    }
  }
  bool IsNan(size_t call) const {
    const auto& output = outputs_[call];
    const size_t length =
        kCalls[call].count * ReceiveParts(kCalls[call].collective, static_cast<size_t>(ranks_));
    return std::all_of(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(length),
                       [](float value) { return value != value; });
  }

 private:
  // Frees the lists before the call is made.
  onebitResult_t CallPairs(size_t i, onebitStream_t stream) {
    std::vector<size_t> counts(static_cast<size_t>(ranks_), kCalls[i].count);
    std::vector<size_t> begins(counts.size());
    for (size_t peer = 0; peer < begins.size(); ++peer) begins[peer] = peer * kCalls[i].count;
    const onebitResult_t result = onebitAllToAllv(
        inputs_[i].data(), counts.data(), begins.data(), outputs_[i].data(), counts.data(),
        begins.data(), onebitFloat32, compressors_[i].get(), comm_, stream);
    counts.assign(counts.size(), SIZE_MAX);
    begins.assign(begins.size(), SIZE_MAX);
    return result;
  }

  onebitComm_t comm_;
  int ranks_ = 0;
  std::vector<UniqueCompressor> compressors_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::vector<float>> outputs_;
};

using Ranks = std::vector<std::unique_ptr<PartsRank>>;

// Every rank makes all calls in each round, one by one or as a group, after `spoil` (own, round,
// rank) has had its inputs.
template <typename Spoil>
Ranks RunRounds(CommGroup& comms, int rounds, bool is_group, Spoil spoil) {
  Ranks ranks(static_cast<size_t>(comms.ranks()));
  comms.Run([&](int rank) {
    auto& own = ranks[static_cast<size_t>(rank)];
    own = std::make_unique<PartsRank>(comms.comm(rank));
    for (int round = 0; round < rounds; ++round) {
      own->Fill(round);
      spoil(*own, round, rank);
      if (is_group) {
        ASSERT_EQ(onebitGroupStart(), onebitSuccess);
      }
      ASSERT_EQ(own->CallAll(), onebitSuccess) << onebitGetLastError(nullptr);
      if (is_group) {
        ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
      }
    }
  });
  return ranks;
}

void ExpectSame(const Ranks& group, const Ranks& one) {
  for (size_t rank = 0; rank < one.size(); ++rank) group[rank]->ExpectSameAs(*one[rank]);
}

class GroupPartsTest : public ::testing::TestWithParam<int> {};

// Includes enough calls for all-gathers to compare their estimates.
TEST_P(GroupPartsTest, IsTheSameAsOneByOne) {
  constexpr int kRounds = 40;
  const auto spoil = [](PartsRank&, int, int) {};
  CommGroup alone(GetParam());
  CommGroup grouped(GetParam());
  ExpectSame(RunRounds(grouped, kRounds, true, spoil), RunRounds(alone, kRounds, false, spoil));
}

// The same on hosts, where some calls take two levels and others one.
TEST(GroupPartsOnHostsTest, IsTheSameAsOneByOne) {
  constexpr int kRounds = 20;
  const auto spoil = [](PartsRank& own, int round, int rank) {
    if (round == 7 && rank == 2) own.SpoilInput(0);
    if (round == 9 && rank == 1) own.SpoilInput(2);
  };
  for (const char* const letters : {"aabb", "abbcc", "aaabbc"}) {
    SCOPED_TRACE(letters);
    CommOptions options = kPatient;
    options.two_level_bytes = 200;
    const std::vector<CommOptions> on_hosts = OnHosts(letters, options);
    CommGroup alone(on_hosts);
    CommGroup grouped(on_hosts);
    ExpectSame(RunRounds(grouped, kRounds, true, spoil), RunRounds(alone, kRounds, false, spoil));
    EXPECT_GT(StatsOf(grouped.comm(0)).two_level_calls, 0u);
    EXPECT_EQ(StatsOf(grouped.comm(0)).two_level_calls, StatsOf(alone.comm(0)).two_level_calls);
    EXPECT_LT(StatsOf(grouped.comm(0)).messages_sent, StatsOf(alone.comm(0)).messages_sent);
  }
}

TEST_P(GroupPartsTest, AValueThatIsNotFiniteSpoilsItsOwnCallOnly) {
  constexpr int kRounds = 3;
  constexpr size_t kSpoiled = 2;  // an all-gather
  const auto spoil = [](PartsRank& own, int round, int rank) {
    if (round == 2 && rank == 0) own.SpoilInput(kSpoiled);
  };
  CommGroup alone(GetParam());
  CommGroup grouped(GetParam());
  const Ranks group = RunRounds(grouped, kRounds, true, spoil);
  ExpectSame(group, RunRounds(alone, kRounds, false, spoil));
  for (const auto& rank : group) {
    EXPECT_TRUE(rank->IsNan(kSpoiled));
    EXPECT_FALSE(rank->IsNan(0));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupPartsTest, ::testing::Values(1, 2, 3, 4));

TEST(StreamPairsTest, CallsHaveCopiesOfTheirLists) {
  CommGroup alone(2);
  CommGroup streamed(2);
  std::vector<std::unique_ptr<PartsRank>> one(2);
  std::vector<std::unique_ptr<PartsRank>> stream(2);
  alone.Run([&](int rank) {
    auto& own = one[static_cast<size_t>(rank)];
    own = std::make_unique<PartsRank>(alone.comm(rank));
    own->Fill(0);
    ASSERT_EQ(own->CallAll(), onebitSuccess);
  });
  streamed.Run([&](int rank) {
    auto& own = stream[static_cast<size_t>(rank)];
    own = std::make_unique<PartsRank>(streamed.comm(rank));
    own->Fill(0);
    UniqueStream calls;
    ASSERT_EQ(MakeStream(calls), onebitSuccess);
    ASSERT_EQ(own->CallAll(calls.get()), onebitSuccess) << onebitGetLastError(nullptr);
    ASSERT_EQ(onebitStreamSynchronize(calls.get()), onebitSuccess) << onebitGetLastError(nullptr);
  });
  for (size_t rank = 0; rank < 2; ++rank) stream[rank]->ExpectSameAs(*one[rank]);
}

}  // namespace
}  // namespace onebit::testing
