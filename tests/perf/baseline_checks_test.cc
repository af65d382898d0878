// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Baselines without the systems they measure: their timer and checks on ranks that are threads, and
// the allreduce in whole-tensor passes against its model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "perf/baselines/multi_pass.h"
#include "perf/baselines/multi_pass_model.h"
#include "perf/baselines/rank_timer.h"
#include "perf/baselines/row_check.h"
#include "perf/common/bursts.h"

namespace onebit::perf {
namespace {

using testing::Each;

constexpr int kRanks = 3;

// Where threads lay down what the others read.
struct Board {
  std::barrier<> barrier{kRanks};
  std::vector<const void*> sent = std::vector<const void*>(kRanks);
};

// A rank, which is a thread.
class ThreadExchange : public Exchange {
 public:
  ThreadExchange(Board& board, int rank) : board_(board), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return kRanks; }
  void AllToAll(const void* send, void* recv, size_t bytes) override {
    Read(send, recv, bytes, static_cast<size_t>(rank_) * bytes);
  }
  void AllGather(const void* mine, void* all, size_t bytes) override { Read(mine, all, bytes, 0); }
  void Barrier() { board_.barrier.arrive_and_wait(); }

 private:
  void Read(const void* send, void* recv, size_t bytes, size_t offset) {
    board_.sent[static_cast<size_t>(rank_)] = send;
    Barrier();
    for (size_t rank = 0; rank < kRanks; ++rank) {
      std::memcpy(static_cast<std::byte*>(recv) + rank * bytes,
                  static_cast<const std::byte*>(board_.sent[rank]) + offset, bytes);
    }
    Barrier();
  }

  Board& board_;
  const int rank_;
};

// Adds up on every rank, or does it in whole-tensor passes; may spoil an element.
class ThreadSystem : public System {
 public:
  ThreadSystem(Board& board, int rank, bool is_multi_pass, bool is_faulty)
      : exchange_(board, rank), is_multi_pass_(is_multi_pass), is_faulty_(is_faulty) {}

  int rank() const override { return exchange_.rank(); }
  int ranks() const override { return kRanks; }
  std::string version() const override { return "threads"; }
  std::string_view transport() const override { return "threads"; }
  size_t max_count() const override { return SIZE_MAX; }
  void Prepare(size_t count) override {
    multi_pass_ = std::make_unique<MultiPassAllReduce>(exchange_, count);
  }
  std::unique_ptr<Expectation> Expect(size_t count) const override {
    if (!is_multi_pass_) return System::Expect(count);
    return std::make_unique<MultiPassModel>(count, kRanks);
  }
  void AllReduce(const float* send, float* recv, size_t count) override {
    ++calls;
    if (is_multi_pass_) {
      multi_pass_->Call(send, recv);
    } else {
      std::vector<float> all(count * kRanks);
      exchange_.AllGather(send, all.data(), count * sizeof(float));
      std::fill_n(recv, count, 0.0f);
      for (size_t i = 0; i < all.size(); ++i) recv[i % count] += all[i];
    }
    if (is_faulty_ && rank() == 1) recv[count - 1] += 1;
  }
  void Barrier() override { exchange_.Barrier(); }
  void AllGather(const void* mine, void* all, size_t bytes) override {
    exchange_.AllGather(mine, all, bytes);
  }

  int calls = 0;

 private:
  ThreadExchange exchange_;
  const bool is_multi_pass_;
  const bool is_faulty_;
  std::unique_ptr<MultiPassAllReduce> multi_pass_;
};

struct Kind {
  bool is_multi_pass = false;
  bool is_faulty = false;
};

void RunRanks(Kind kind, const std::function<void(ThreadSystem&)>& work) {
  Board board;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadSystem system(board, rank, kind.is_multi_pass, kind.is_faulty);
      work(system);
    });
  }
}

std::vector<CheckResult> Check(Kind kind, size_t count) {
  std::vector<CheckResult> results(kRanks);
  RunRanks(kind, [&](ThreadSystem& system) {
    std::vector<float> send(count), recv(count);
    results[static_cast<size_t>(system.rank())] = CheckRow(system, count, 2, send, recv);
  });
  return results;
}

// In any order of additions, or right systems would be called wrong.
TEST(BaselineChecksTest, SumsOfInputsAreExactAndNeverMinusZero) {
  for (size_t i = 0; i < 20000; ++i) {
    double exact = 0;
    float forward = 0, backward = 0;
    for (int rank = 0; rank < 16; ++rank) {
      exact += CheckedInput(0, rank).At(i);
      forward += CheckedInput(0, rank).At(i);
      backward += CheckedInput(0, 15 - rank).At(i);
      ASSERT_FALSE(std::signbit(CheckedInput(0, rank).At(i)) && CheckedInput(0, rank).At(i) == 0);
    }
    ASSERT_EQ(forward, exact) << i;
    ASSERT_EQ(backward, exact) << i;
  }
}

TEST(BaselineChecksTest, RightSumsAreRight) {
  for (const CheckResult& result : Check({}, 1000)) {
    EXPECT_EQ(result.wrong_out_of_place, 0u);
    EXPECT_EQ(result.wrong_in_place, 0u);
    EXPECT_EQ(result.problem, "");
  }
}

TEST(BaselineChecksTest, OneWrongElementOfOneRankIsCountedByAll) {
  const std::vector<CheckResult> results = Check({.is_faulty = true}, 1000);
  for (const CheckResult& result : results) {
    EXPECT_EQ(result.wrong_out_of_place, 2u);  // one in each pass
    EXPECT_EQ(result.wrong_in_place, 2u);
  }
  EXPECT_THAT(results[1].problem,
              testing::HasSubstr("rank 1 has 1 wrong elements, the first is element 999"));
}

TEST(BaselineChecksTest, WholeTensorPassesGiveTheBitsOfTheModel) {
  for (const size_t count : {1, 64, 191, 192, 193, 5000}) {
    for (const CheckResult& result : Check({.is_multi_pass = true}, count)) {
      EXPECT_EQ(result.wrong_out_of_place, 0u) << count << ": " << result.problem;
      EXPECT_EQ(result.wrong_in_place, 0u) << count << ": " << result.problem;
    }
  }
}

TEST(BaselineChecksTest, TheModelNoticesAWrongPass) {
  for (const CheckResult& result : Check({.is_multi_pass = true, .is_faulty = true}, 5000)) {
    EXPECT_EQ(result.wrong_out_of_place, 2u * 3u);  // passes times calls
  }
}

// What compressed calls give over time is what went in, but for what the residuals still hold.
TEST(BaselineChecksTest, ErrorFeedbackOfWholeTensorPassesTelescopes) {
  constexpr size_t kCount = 1000;
  constexpr int kCalls = 400;
  std::vector<double> total(kCount);
  RunRanks({.is_multi_pass = true}, [&](ThreadSystem& system) {
    std::vector<float> send(kCount), recv(kCount);
    const CheckedInput input(0, system.rank());
    for (size_t i = 0; i < kCount; ++i) send[i] = input.At(i);
    system.Prepare(kCount);
    for (int call = 0; call < kCalls; ++call) {
      system.AllReduce(send.data(), recv.data(), kCount);
      if (system.rank() != 0) continue;
      for (size_t i = 0; i < kCount; ++i) total[i] += recv[i];
    }
  });
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    for (int rank = 0; rank < kRanks; ++rank) exact += CheckedInput(0, rank).At(i);
    // A call alone is wrong by about 2; residuals are bounded, so the mean's error falls with
    // calls.
    EXPECT_NEAR(total[i] / kCalls, exact, 0.2) << i;
  }
}

TEST(BaselineTimerTest, RanksAgreeOnCallsAndTimes) {
  std::vector<RowTimes> all(kRanks);
  std::vector<int> calls(kRanks);
  RunRanks({}, [&](ThreadSystem& system) {
    std::vector<float> send(4096), recv(4096);
    SweepFlags flags;
    flags.iterations = 5;
    const auto rank = static_cast<size_t>(system.rank());
    all[rank] = TimeRow(system, 1024, flags, send, recv);
    calls[rank] = system.calls;
  });
  for (const RowTimes& times : all) {
    EXPECT_EQ(times.calls, 5);
    EXPECT_EQ(times.untimed_calls, 1 + 1 + 5);  // one first, one first in place, five in place
    EXPECT_GT(times.out_of_place_seconds, 0);
    EXPECT_EQ(times.out_of_place_seconds, all[0].out_of_place_seconds);
    EXPECT_EQ(times.in_place_seconds, all[0].in_place_seconds);
  }
  EXPECT_THAT(calls, Each(12));
}

TEST(BaselineTimerTest, SlowCallsAreFewAndAllCount) {
  std::vector<RowTimes> all(kRanks);
  std::vector<int> calls(kRanks);
  RunRanks({}, [&](ThreadSystem& system) {
    std::vector<float> send(1024), recv(1024);
    SweepFlags flags;
    flags.row_seconds = 0;
    flags.is_in_place_timed = false;
    const auto rank = static_cast<size_t>(system.rank());
    all[rank] = TimeRow(system, 1024, flags, send, recv);
    calls[rank] = system.calls;
  });
  for (const RowTimes& times : all) {
    EXPECT_EQ(times.calls, kFewestCalls);
    EXPECT_EQ(times.untimed_calls, 0);
    EXPECT_FALSE(times.in_place_seconds.has_value());
  }
  EXPECT_THAT(calls, Each(kFewestCalls));
}

}  // namespace
}  // namespace onebit::perf
