// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A check finds every wrong element on every rank, wherever the rank is, and none if all are right;
// measurements are the same for threads and processes.
#include "perf/common/row_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "perf/common/all_reduce_collective.h"
#include "perf/common/all_reduce_reference.h"
#include "perf/common/bursts.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/row_timer.h"
#include "tests/perf/one_rank_a_process.h"

namespace onebit::perf {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRanks = 3;
constexpr size_t kCount = 1000;
constexpr Case kRow = {.count = kCount, .type = onebitFloat32, .op = onebitAvg, .ranks = kRanks};

// An allreduce that writes elements 5, 6, ... of `wrong_rank` wrong.
class FaultyAllReduce : public AllReduceCollective {
 public:
  FaultyAllReduce(int wrong_rank, size_t wrong_elements)
      : wrong_rank_(wrong_rank), wrong_elements_(wrong_elements) {}

  std::string_view tool() const override { return "test"; }
  const char* call() const override { return "onebitAllReduce"; }

  onebitResult_t Run(const Case& row, const RankCall& call) const override {
    const onebitResult_t result = onebitAllReduce(call.send, call.recv, row.count, row.type, row.op,
                                                  call.compressor, call.comm, call.stream);
    if (RankOf(call.comm) == wrong_rank_) {
      for (size_t i = 0; i < wrong_elements_; ++i) static_cast<float*>(call.recv)[5 + i] = 99;
    }
    return result;
  }
  std::unique_ptr<Reference> MakeReference(const Case& row, const Options& options) const override {
    return MakeAllReduceReference(row, options);
  }

 private:
  int wrong_rank_;
  size_t wrong_elements_;
};

void CreateCompressors(Ranks& ranks, const Options& options) {
  ranks.pool().Run(
      [&](int rank) { FaultyAllReduce(-1, 0).Prepare(kRow, options, ranks.state(rank)); });
}

// Returns the verdict of every process.
std::vector<CheckResult> CheckInProcesses(const Collective& collective, const Options& options) {
  std::vector<CheckResult> results(kRanks);
  const auto errors = RunOneRankAProcess(kRanks, kCount * 4, [&](Ranks& ranks) {
    CreateCompressors(ranks, options);
    results[static_cast<size_t>(ranks.first())] = CheckRow(collective, kRow, options, ranks);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  return results;
}

std::unique_ptr<Ranks> ThreadRanks() {
  Options options;
  options.ranks.threads = kRanks;
  options.sweep.max_bytes = kCount * 4;
  return MakeRanks(options);
}

TEST(RowCheckerTest, RightResultsHaveNothingWrong) {
  for (const Mode mode : {Mode::kDense, Mode::kPlain, Mode::kEf}) {
    Options options;
    options.mode = mode;
    for (const CheckResult& result : CheckInProcesses(FaultyAllReduce(-1, 0), options)) {
      EXPECT_EQ(result.wrong_out_of_place, 0u) << result.problem;
      EXPECT_EQ(result.wrong_in_place, 0u) << result.problem;
    }
  }
}

// Random rounding goes on with the number of calls, so passes need compressors of their own.
TEST(RowCheckerTest, EveryCodecIsRight) {
  for (const onebitCodec_t codec : {onebitCodecFp4, onebitCodecInt8Stochastic, onebitCodecBf16}) {
    Options options;
    options.mode = Mode::kPlain;
    options.codec = codec;
    options.block = codec == onebitCodecBf16 ? 1 : 256;
    options.checks = 2;
    const CheckResult result = CheckInProcesses(FaultyAllReduce(-1, 0), options)[0];
    EXPECT_EQ(result.wrong_out_of_place, 0u) << result.problem;
    EXPECT_EQ(result.wrong_in_place, 0u) << result.problem;
  }
}

TEST(RowCheckerTest, CountsWrongElementsOfAnyRank) {
  for (const Mode mode :
       {Mode::kDense, Mode::kPlain}) {  // with ef, one wrong call would spoil the next
    for (int wrong_rank = 0; wrong_rank < kRanks; ++wrong_rank) {
      Options options;
      options.mode = mode;
      const uint64_t calls = mode == Mode::kDense ? 1 : 3;
      const FaultyAllReduce faulty(wrong_rank, 7);
      const std::vector<CheckResult> results = CheckInProcesses(faulty, options);
      EXPECT_EQ(results[0].wrong_out_of_place, calls * 7);
      EXPECT_EQ(results[0].wrong_in_place, calls * 7);
      EXPECT_THAT(results[0].problem,
                  HasSubstr("rank " + std::to_string(wrong_rank) +
                            " has 7 wrong elements, the first is element 5: 99 instead of"));
      EXPECT_EQ(results[1].wrong_out_of_place, 0u);  // only rank 0 reports

      if (mode != Mode::kDense) continue;
      const auto threads = ThreadRanks();
      EXPECT_EQ(CheckRow(faulty, kRow, options, *threads).problem, results[0].problem);
    }
  }
}

TEST(RowCheckerTest, EveryProcessKnowsTheErrorOfThreads) {
  const FaultyAllReduce collective(-1, 0);
  Options options;
  options.mode = Mode::kEf;
  const auto fill = [&](Ranks& ranks) {
    CreateCompressors(ranks, options);
    ranks.pool().Run([&](int rank) {
      FillSeeded(ranks.state(rank).send.data(), kCount, onebitFloat32, kTimedSeed, rank);
    });
  };
  const auto threads = ThreadRanks();
  fill(*threads);
  const Options usual;  // a temporary makes GCC 12 see uninitialised strings
  CheckRow(collective, kRow, usual, *threads);  // leaves the inputs as they were
  CreateCompressors(*threads, options);         // with fresh residuals
  const double expected = RelativeErrorOfFirstCall(collective, kRow, *threads);
  EXPECT_GT(expected, 0.5);
  const auto errors = RunOneRankAProcess(kRanks, kCount * 4, [&](Ranks& ranks) {
    fill(ranks);
    EXPECT_EQ(RelativeErrorOfFirstCall(collective, kRow, ranks), expected);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RowTimerTest, EveryProcessKnowsTheMeansOfAll) {
  std::mutex mutex;
  std::vector<RowTimes> all;
  const auto errors = RunOneRankAProcess(kRanks, kCount * 4, [&](Ranks& ranks) {
    ranks.pool().Run([&](int rank) {
      FillSeeded(ranks.state(rank).send.data(), kCount, onebitFloat32, kTimedSeed, rank);
    });
    const Options options;  // a temporary makes GCC 12 see uninitialised strings
    const RowTimes times = TimeRow(FaultyAllReduce(-1, 0), kRow, options, ranks);
    const std::lock_guard lock(mutex);
    all.push_back(times);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  ASSERT_EQ(all.size(), size_t{kRanks});
  for (const RowTimes& times : all) {
    EXPECT_GT(times.out_of_place_seconds, 0);
    EXPECT_EQ(times.out_of_place_seconds, all[0].out_of_place_seconds);
    EXPECT_EQ(times.wire_bytes, all[0].wire_bytes);
    EXPECT_GT(times.wire_bytes, kCount * 4);
  }
}

// All ranks must derive the same number of calls from a time, or they would wait for each other.
TEST(RowTimerTest, ATimeForTheRowDecidesHowManyCalls) {
  const auto ranks = ThreadRanks();
  Options options;
  options.iterations = 7;
  options.is_in_place_timed = false;
  options.row_seconds = 1e5;
  const FaultyAllReduce collective(-1, 0);
  const RowTimes many = TimeRow(collective, kRow, options, *ranks);
  EXPECT_EQ(many.calls, 7);
  EXPECT_EQ(many.untimed_calls, 1);
  EXPECT_FALSE(many.in_place_seconds.has_value());
  options.row_seconds = 0;
  const RowTimes few = TimeRow(collective, kRow, options, *ranks);
  EXPECT_EQ(few.calls, kFewestCalls);
  EXPECT_EQ(few.untimed_calls, 0);  // the call that showed how slow it is counts
  EXPECT_GT(few.out_of_place_seconds, 0);
}

}  // namespace
}  // namespace onebit::perf
