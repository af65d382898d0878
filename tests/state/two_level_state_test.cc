// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Residuals of compressors with two levels in states and rebinds: what they owe stays the same
// amount, whichever ranks and hosts have it.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 3001;

// The debt of all ranks per element, in units of the result.
struct Owed {
  std::vector<double> workers = std::vector<double>(kCount, 0.0);
  std::vector<double> servers = std::vector<double>(kCount, 0.0);
};

// The ranks of a communicator with one tensor.
class Job {
 public:
  Job(const std::string& letters, int levels, onebitRedOp_t op = onebitAvg,
      onebitCodec_t codec = onebitCodecSign, const CommOptions& options = kPatient)
      : op_(op) {
    auto group =
        Comm::CreateLocalGroup(*Transport::Get("local").value(), OnHosts(letters, options));
    for (auto& comm : group.value()) comms_.emplace_back(new onebitComm_s(std::move(comm)));
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.codec = codec;
    config.block = 64;
    config.levels = levels;
    for (const UniqueComm& comm : comms_) {
      compressors_.push_back(NewCompressor(comm.get(), kCount, onebitFloat32, config));
    }
  }

  int ranks() const { return static_cast<int>(comms_.size()); }
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }
  const PlannedCompressor& planned(int rank) const { return compressor(rank)->planned; }

  std::vector<Outcome> Each(const std::function<onebitResult_t(int rank)>& call) const {
    std::vector<Outcome> outcomes(comms_.size());
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks(); ++rank) {
        threads.emplace_back([&, rank] {
          outcomes[static_cast<size_t>(rank)] = CallHere([&] { return call(rank); });
        });
      }
    }
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    return outcomes;
  }

  // Makes calls, and returns the last result.
  std::vector<float> Call(int calls) {
    std::vector<std::vector<float>> values(comms_.size(), std::vector<float>(kCount));
    for (int call = 0; call < calls; ++call) {
      ++calls_;
      for (size_t r = 0; r < values.size(); ++r) {
        std::mt19937 random(100 * calls_ + static_cast<uint32_t>(r));
        std::normal_distribution<float> normal;
        for (float& value : values[r]) value = normal(random);
      }
      Each([&](int rank) {
        std::vector<float>& mine = values[static_cast<size_t>(rank)];
        return onebitAllReduce(mine.data(), mine.data(), kCount, onebitFloat32, op_,
                               compressor(rank), comms_[static_cast<size_t>(rank)].get(), nullptr);
      });
      for (const auto& one : values) EXPECT_EQ(one, values[0]);
    }
    return values[0];
  }

  // The next call has the inputs of a later one.
  void Skip(uint32_t calls) { calls_ += calls; }

  Owed owed() const {
    Owed owed;
    for (int rank = 0; rank < ranks(); ++rank) {
      const Plan& plan = *planned(rank).plan;
      const double share = RanksOfHost(rank) / (op_ == onebitSum ? 1 : ranks());
      const std::vector<float> worker = WorkerResidualOf(compressor(rank));
      for (size_t i = 0; i < worker.size(); ++i) {
        owed.workers[plan.compressed.begin + i] += share * worker[i];
      }
      const std::vector<float> server = ServerResidualOf(compressor(rank));
      const double server_unit = planned(rank).compressor.server_unit(
          op_ == onebitSum ? ReduceOp::kSum : ReduceOp::kAvg, static_cast<size_t>(ranks()));
      for (size_t i = 0; i < server.size(); ++i) {
        owed.servers[plan.served.begin + i] += server[i] * server_unit;
      }
    }
    return owed;
  }
  // For how many ranks the worker residual of a rank stands.
  double RanksOfHost(int rank) const {
    if (!planned(rank).plan->key.has_two_levels) return 1;
    const HostMap& hosts = comms_[static_cast<size_t>(rank)]->comm->hosts();
    return static_cast<double>(hosts.RanksOn(hosts.HostOf(static_cast<uint32_t>(rank))).size());
  }

  std::vector<std::byte> Export(int state_rank, onebitStateKind_t kind) {
    std::vector<std::vector<std::byte>> states(comms_.size());
    const auto export_of = [&](int rank) {
      size_t bytes = 0;
      if (const auto result = onebitCompressorExport(compressor(rank), kind, nullptr, &bytes);
          result != onebitSuccess) {
        return result;
      }
      std::vector<std::byte>& state = states[static_cast<size_t>(rank)];
      state.resize(bytes);
      return onebitCompressorExport(compressor(rank), kind, state.data(), &bytes);
    };
    Each(export_of);
    return states[static_cast<size_t>(state_rank)];
  }
  void Import(const std::vector<std::byte>& state) {
    Each([&](int rank) {
      return onebitCompressorImport(compressor(rank), state.data(), state.size());
    });
  }

  void GoOnWithout(const std::vector<int>& excluded) {
    std::vector<UniqueComm> made(comms_.size());
    Each([&](int rank) {
      if (std::ranges::count(excluded, rank) != 0) return onebitSuccess;
      onebitComm_t handle = nullptr;
      const onebitResult_t result = onebitCommShrink(
          comms_[static_cast<size_t>(rank)].get(), excluded.data(),
          static_cast<int>(excluded.size()), &handle, nullptr, ONEBIT_SHRINK_DEFAULT);
      made[static_cast<size_t>(rank)].reset(handle);
      return result;
    });
    for (int rank = ranks() - 1; rank >= 0; --rank) {
      if (std::ranges::count(excluded, rank) == 0) continue;
      made.erase(made.begin() + rank);
      compressors_.erase(compressors_.begin() + rank);
    }
    std::swap(comms_, made);
    Each([&](int rank) {
      int source = 0;
      return onebitCompressorRebind(compressor(rank), comms_[static_cast<size_t>(rank)].get(),
                                    &source);
    });
  }

 private:
  const onebitRedOp_t op_;
  std::vector<UniqueComm> comms_;
  std::vector<UniqueCompressor> compressors_;
  uint32_t calls_ = 0;
};

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected,
                const char* what) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 1e-6 * largest) << what << ", element " << i;
  }
}

struct Move {
  const char* from;
  const char* to;
};

class TwoLevelStateTest : public ::testing::TestWithParam<std::tuple<Move, onebitRedOp_t>> {};

// A state of all ranks goes from any hosts to any others, and to ranks with one level.
TEST_P(TwoLevelStateTest, AStateOfAllRanksFitsOtherHosts) {
  const auto& [move, op] = GetParam();
  for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecFp4}) {
    for (const int levels : {1, 2}) {
      for (const int other_levels : {1, 2}) {
        Job job(move.from, levels, op, codec);
        job.Call(3);
        const Owed owed = job.owed();
        Job other(move.to, other_levels, op, codec);
        other.Import(job.Export(0, onebitStateGlobal));
        ExpectNear(other.owed().workers, owed.workers, "workers");
        ExpectNear(other.owed().servers, owed.servers, "servers");
        other.Call(2);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Moves, TwoLevelStateTest,
    ::testing::Combine(::testing::Values(Move{"aabb", "abcd"}, Move{"aaaabb", "aabbccd"},
                                         Move{"aabbb", "aaaabbbb"}, Move{"abab", "a"}),
                       ::testing::Values(onebitAvg, onebitSum)),
    [](const auto& info) {
      const Move& move = std::get<0>(info.param);
      return std::string(move.from) + "To" + move.to +
             (std::get<1>(info.param) == onebitSum ? "Sum" : "Avg");
    });

TEST(TwoLevelRankStateTest, FitsTheSameRanksOnTheSameHosts) {
  Job job("aabbc", 2);
  job.Call(3);
  std::vector<std::vector<std::byte>> states;
  for (int rank = 0; rank < 5; ++rank) states.push_back(job.Export(rank, onebitStateRank));
  const std::vector<float> expected = job.Call(1);
  // The fourth call of a new job has the inputs of the first job's.
  Job again("aabbc", 2);
  again.Call(3);
  again.Each([&](int rank) {
    const auto& state = states[static_cast<size_t>(rank)];
    return onebitCompressorImport(again.compressor(rank), state.data(), state.size());
  });
  EXPECT_EQ(again.Call(1), expected);

  Job other_hosts("ababc", 2);
  EXPECT_EQ(onebitCompressorImport(other_hosts.compressor(0), states[0].data(), states[0].size()),
            onebitMismatch);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("hosts of ranks (ONEBIT_HOST"));
  Job flat("aabbc", 1);
  EXPECT_EQ(onebitCompressorImport(flat.compressor(0), states[0].data(), states[0].size()),
            onebitMismatch);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("levels 2 in the state, 1 here"));
}

// A job from before the library chose two levels goes on as it was.
TEST(TwoLevelRankStateTest, OfOneLevelTakesTheChoiceBack) {
  CommOptions choosing = kPatient;
  choosing.two_level_bytes = 0;
  for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecFp4}) {
    Job former("aabbc", 1, onebitAvg, codec);
    former.Call(3);
    std::vector<std::vector<std::byte>> states;
    for (int rank = 0; rank < 5; ++rank) states.push_back(former.Export(rank, onebitStateRank));
    const auto import_to = [&](Job& job) {
      std::vector<onebitResult_t> results(5);
      job.Each([&](int rank) {
        const auto r = static_cast<size_t>(rank);
        results[r] =
            onebitCompressorImport(job.compressor(rank), states[r].data(), states[r].size());
        return onebitSuccess;
      });
      return results;
    };
    Job job("aabbc", 0, onebitAvg, codec, choosing);
    EXPECT_EQ(StatsOf(job.compressor(0)).levels, 2u);
    EXPECT_THAT(import_to(job), ::testing::Each(onebitSuccess));
    EXPECT_EQ(StatsOf(job.compressor(0)).levels, 1u);
    job.Skip(3);
    EXPECT_EQ(job.Call(1), former.Call(1));
    ExpectNear(job.owed().workers, former.owed().workers, "workers");
    // Also where it goes on without a rank.
    job.GoOnWithout({1});
    EXPECT_EQ(StatsOf(job.compressor(0)).levels, 1u);
    job.Call(1);

    Job used("aabbc", 0, onebitAvg, codec, choosing);
    used.Call(1);
    EXPECT_THAT(import_to(used), ::testing::Each(onebitMismatch));
    EXPECT_EQ(StatsOf(used.compressor(0)).levels, 2u);
    Job asking("aabbc", 2, onebitAvg, codec, choosing);
    EXPECT_THAT(import_to(asking), ::testing::Each(onebitMismatch));

    // A state that cannot be loaded for another reason changes nothing.
    Job weighted("aabbc", 0, onebitAvg, codec, choosing);
    for (int rank = 0; rank < 5; ++rank) {
      ASSERT_EQ(onebitCompressorSetWeight(weighted.compressor(rank), 1.0f), onebitSuccess);
    }
    Job sums("aabbc", 1, onebitSum, codec);
    sums.Call(1);
    for (int rank = 0; rank < 5; ++rank) {
      states[static_cast<size_t>(rank)] = sums.Export(rank, onebitStateRank);
    }
    const uint64_t bytes = StatsOf(weighted.compressor(0)).residual_bytes;
    EXPECT_THAT(import_to(weighted), ::testing::Each(onebitMismatch));
    EXPECT_EQ(StatsOf(weighted.compressor(0)).levels, 2u);
    EXPECT_EQ(StatsOf(weighted.compressor(0)).residual_bytes, bytes);
    weighted.Call(1);
  }
}

class TwoLevelRebindTest : public ::testing::TestWithParam<onebitRedOp_t> {};

// Nothing is lost but the residuals of lost ranks, which are counted.
TEST_P(TwoLevelRebindTest, OnlyWhatLostRanksHeldIsLost) {
  for (const std::vector<int>& lost : {std::vector<int>{1}, {2, 3}, {0, 3}, {0, 1, 2}, {}}) {
    Job job("aabbcc", 2, GetParam());
    job.Call(3);
    const int ranks = job.ranks();
    const auto is_lost = [&](int rank) { return std::ranges::count(lost, rank) != 0; };
    const int left = ranks - static_cast<int>(lost.size());
    Owed expected;
    uint64_t lost_elements = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Plan& plan = *job.planned(rank).plan;
      if (is_lost(rank)) {
        lost_elements += plan.compressed.count + plan.served.count;
        continue;
      }
      const int neighbour = rank % 2 == 0 ? rank + 1 : rank - 1;  // on the same host
      const double share = (is_lost(neighbour) ? 1.0 : 2.0) / (GetParam() == onebitSum ? 1 : left);
      const std::vector<float> worker = WorkerResidualOf(job.compressor(rank));
      for (size_t i = 0; i < worker.size(); ++i) {
        expected.workers[plan.compressed.begin + i] += share * worker[i];
      }
      const std::vector<float> server = ServerResidualOf(job.compressor(rank));
      for (size_t i = 0; i < server.size(); ++i) {
        expected.servers[plan.served.begin + i] += server[i];
      }
    }
    job.GoOnWithout(lost);
    ExpectNear(job.owed().workers, expected.workers, "workers");
    ExpectNear(job.owed().servers, expected.servers, "servers");
    for (int rank = 0; rank < job.ranks(); ++rank) {
      EXPECT_EQ(StatsOf(job.compressor(rank)).lost_elements, lost_elements);
      EXPECT_EQ(StatsOf(job.compressor(rank)).epoch, 3u);
    }
    job.Call(2);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, TwoLevelRebindTest, ::testing::Values(onebitAvg, onebitSum),
                         [](const auto& info) { return info.param == onebitSum ? "Sum" : "Avg"; });

}  // namespace
}  // namespace onebit::testing
