// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Baselines without the systems they measure: the sweep driver on a system whose ranks are threads,
// and the allreduce in whole-tensor passes against its model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "perf/common/bursts.h"
#include "perf/common/rank_state.h"
#include "perf/common/row_checker.h"
#include "perf/common/row_timer.h"
#include "perf/studies/baselines/multi_pass.h"
#include "perf/studies/baselines/multi_pass_model.h"
#include "perf/studies/baselines/system_all_reduce.h"

namespace onebit::perf {
namespace {

using testing::Each;

constexpr int kRanks = 3;

// Pointers through which the threads read each other's memory.
struct Board {
  std::barrier<> barrier{kRanks};
  std::vector<const void*> sent = std::vector<const void*>(kRanks);
};

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

// Adds up on every rank, or works in whole-tensor passes; may spoil an element.
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
    if (is_multi_pass_) multi_pass_ = std::make_unique<MultiPassAllReduce>(exchange_, count);
  }
  void Reset() override {
    if (is_multi_pass_) multi_pass_->Reset();
  }
  std::unique_ptr<Reference> MakeReference(const Case& row) const override {
    if (!is_multi_pass_) return System::MakeReference(row);
    return std::make_unique<MultiPassModel>(row);
  }
  int checked_calls() const override { return is_multi_pass_ ? 3 : 1; }
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
  void Broadcast(std::span<std::byte> bytes, int root) override {
    std::vector<std::byte> all(bytes.size() * kRanks);
    exchange_.AllGather(bytes.data(), all.data(), bytes.size());
    std::memcpy(bytes.data(), all.data() + bytes.size() * static_cast<size_t>(root), bytes.size());
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

// The result of rank 0, which checks for all.
CheckResult Check(Kind kind, size_t count) {
  CheckResult result;
  RunRanks(kind, [&](ThreadSystem& system) {
    Ranks ranks(system, count * sizeof(float), 0);
    const SystemAllReduce collective("test", system);
    const Case row = {.count = count, .ranks = kRanks};
    Options options;
    options.checks = 2;
    system.Prepare(count);
    const CheckResult mine = CheckRow(collective, row, options, ranks);
    if (system.rank() == 0) result = mine;
  });
  return result;
}

std::vector<float> ExactInput(size_t count, int rank) {
  std::vector<float> values(count);
  FillExact(values.data(), count, 1, rank);
  return values;
}

// Otherwise right systems would be called wrong, depending on the order in which they add.
TEST(BaselineChecksTest, SumsOfInputsAreExactAndNeverMinusZero) {
  constexpr size_t kCount = 20000;
  constexpr size_t kInputs = 16;
  std::vector<std::vector<float>> inputs;
  for (size_t rank = 0; rank < kInputs; ++rank) {
    inputs.push_back(ExactInput(kCount, static_cast<int>(rank)));
  }
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    float forward = 0, backward = 0;
    for (size_t rank = 0; rank < kInputs; ++rank) {
      exact += inputs[rank][i];
      forward += inputs[rank][i];
      backward += inputs[kInputs - 1 - rank][i];
      ASSERT_FALSE(std::signbit(inputs[rank][i]) && inputs[rank][i] == 0);
    }
    ASSERT_EQ(forward, exact) << i;
    ASSERT_EQ(backward, exact) << i;
  }
}

TEST(BaselineChecksTest, RightSumsAreRight) {
  const CheckResult result = Check({}, 1000);
  EXPECT_EQ(result.wrong_out_of_place, 0u);
  EXPECT_EQ(result.wrong_in_place, 0u);
  EXPECT_EQ(result.problem, "");
}

TEST(BaselineChecksTest, OneWrongElementOfOneRankIsCounted) {
  const CheckResult result = Check({.is_faulty = true}, 1000);
  EXPECT_EQ(result.wrong_out_of_place, 2u);  // one in each pass
  EXPECT_EQ(result.wrong_in_place, 2u);
  EXPECT_THAT(result.problem,
              testing::HasSubstr("rank 1 has 1 wrong elements, the first is element 999"));
}

TEST(BaselineChecksTest, WholeTensorPassesGiveTheBitsOfTheModel) {
  for (const size_t count : {1, 64, 191, 192, 193, 5000}) {
    const CheckResult result = Check({.is_multi_pass = true}, count);
    EXPECT_EQ(result.wrong_out_of_place, 0u) << count << ": " << result.problem;
    EXPECT_EQ(result.wrong_in_place, 0u) << count << ": " << result.problem;
  }
}

TEST(BaselineChecksTest, TheModelNoticesAWrongPass) {
  const CheckResult result = Check({.is_multi_pass = true, .is_faulty = true}, 5000);
  EXPECT_EQ(result.wrong_out_of_place, 2u * 3u);  // passes times calls
}

// Over many calls the outputs add up to the inputs, less what the residuals still hold.
TEST(BaselineChecksTest, ErrorFeedbackOfWholeTensorPassesTelescopes) {
  constexpr size_t kCount = 1000;
  constexpr int kCalls = 400;
  std::vector<double> total(kCount);
  RunRanks({.is_multi_pass = true}, [&](ThreadSystem& system) {
    const std::vector<float> send = ExactInput(kCount, system.rank());
    std::vector<float> recv(kCount);
    system.Prepare(kCount);
    for (int call = 0; call < kCalls; ++call) {
      system.AllReduce(send.data(), recv.data(), kCount);
      if (system.rank() != 0) continue;
      for (size_t i = 0; i < kCount; ++i) total[i] += recv[i];
    }
  });
  std::vector<double> exact(kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> input = ExactInput(kCount, rank);
    for (size_t i = 0; i < kCount; ++i) exact[i] += input[i];
  }
  for (size_t i = 0; i < kCount; ++i) {
    // A single call is wrong by about 2. Residuals are bounded, so the error of the mean falls with
    // the number of calls.
    EXPECT_NEAR(total[i] / kCalls, exact[i], 0.2) << i;
  }
}

// The times that each rank measured, and the number of its calls.
struct Timed {
  std::vector<RowTimes> times = std::vector<RowTimes>(kRanks);
  std::vector<int> calls = std::vector<int>(kRanks);
};

Timed Time(const Options& options) {
  constexpr size_t kCount = 1024;
  Timed timed;
  RunRanks({}, [&](ThreadSystem& system) {
    Ranks ranks(system, 4 * kCount * sizeof(float), 0);
    const auto rank = static_cast<size_t>(system.rank());
    timed.times[rank] = TimeRow(SystemAllReduce("test", system), {.count = kCount, .ranks = kRanks},
                                options, ranks);
    timed.calls[rank] = system.calls;
  });
  return timed;
}

TEST(BaselineTimerTest, RanksAgreeOnCallsAndTimes) {
  Options options;
  options.iterations = 5;
  const Timed timed = Time(options);
  for (const RowTimes& times : timed.times) {
    EXPECT_EQ(times.calls, 5);
    EXPECT_EQ(times.untimed_calls, 1 + 1 + 5);  // one first, one first in place, five in place
    EXPECT_GT(times.out_of_place_seconds, 0);
    EXPECT_EQ(times.out_of_place_seconds, timed.times[0].out_of_place_seconds);
    EXPECT_EQ(times.in_place_seconds, timed.times[0].in_place_seconds);
    EXPECT_EQ(times.wire_bytes, 0u);  // such a system does not count
  }
  EXPECT_THAT(timed.calls, Each(12));
}

TEST(BaselineTimerTest, SlowCallsAreFewAndAllCount) {
  Options options;
  options.row_seconds = 0;
  options.is_in_place_timed = false;
  const Timed timed = Time(options);
  for (const RowTimes& times : timed.times) {
    EXPECT_EQ(times.calls, kFewestCalls);
    EXPECT_EQ(times.untimed_calls, 0);
    EXPECT_FALSE(times.in_place_seconds.has_value());
  }
  EXPECT_THAT(timed.calls, Each(kFewestCalls));
}

}  // namespace
}  // namespace onebit::perf
