// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A soak over threads detects errors and reports their place.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/common/tool_error.h"
#include "perf/studies/soak/soak.h"
#include "perf/studies/soak/watchdog.h"

namespace onebit::soak {
namespace {

using testing::HasSubstr;

SoakOptions Options() {
  SoakOptions options;
  options.rounds = 6;
  options.seed = 11;
  options.ranks.threads = 3;
  options.max_elements = 5000;
  options.deadline_seconds = 20;
  return options;
}

// Lets `damage` change the result of the third call of this kind on rank 1.
SoakHooks Damage(ActionKind kind, std::function<void(std::span<std::byte>)> damage) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  return {.after_call = [=](int rank, const Action& action, std::span<std::byte> result) {
    if (rank == 1 && action.kind == kind && !result.empty() && ++*calls == 3) damage(result);
  }};
}

std::string ErrorOf(const SoakHooks& hooks) {
  try {
    RunSoak(Options(), hooks);
  } catch (const perf::ToolError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SoakTest, CountsWhatItDid) {
  const SoakResult result = RunSoak(Options());
  EXPECT_EQ(result.rounds, 6U);
  EXPECT_EQ(result.by_rank.size(), 3U);
  EXPECT_GT(result.communicators, 2U);
  EXPECT_GT(result.actions[static_cast<size_t>(ActionKind::kCompressed)], 5U);
  EXPECT_GT(result.by_rank[2].wire_bytes, 0U);
}

TEST(SoakTest, OneFlippedBitIsFound) {
  for (const ActionKind kind : {ActionKind::kCompressed, ActionKind::kDense}) {
    const std::string error =
        ErrorOf(Damage(kind, [](std::span<std::byte> result) { result.back() ^= std::byte{1}; }));
    EXPECT_THAT(error, HasSubstr("rank 1: round "));
    EXPECT_THAT(error, HasSubstr(NameOf(kind)));
    EXPECT_THAT(error, HasSubstr("1 of "));
    EXPECT_THAT(error, HasSubstr("repeat it with: soak --seed 11 --first-round "));
  }
}

TEST(SoakTest, AByteBehindTheResultIsFound) {
  const std::string error = ErrorOf(Damage(ActionKind::kCompressed, [](std::span<std::byte> bytes) {
    *(bytes.data() + bytes.size()) = std::byte{0};
  }));
  EXPECT_THAT(error, HasSubstr("memory behind the result was written to"));
}

TEST(SoakWatchdogDeathTest, EndsAProcessThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    Watchdog watchdog("soak", std::chrono::milliseconds(200));
    watchdog.Note("rank 2, round 17");
    std::this_thread::sleep_for(std::chrono::seconds(20));  // the hang
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "nothing has happened for 0.2 s after rank 2, round 17");
}

TEST(SoakWatchdogDeathTest, LeavesAProcessThatDoesNot) {
  Watchdog watchdog("soak", std::chrono::milliseconds(2000));
  for (int i = 0; i < 30; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // longer than it watches, in all
    watchdog.Note("something");
  }
}

TEST(SoakTest, GrowthBeyondTheLimitIsAProblem) {
  constexpr uint64_t kMiB = 1 << 20;
  SoakResult result;
  result.was_warmed_up = true;
  RankFigures figures;
  figures.warmed_up = {.resident_bytes = 100 * kMiB, .heap_bytes = 50 * kMiB, .descriptors = 20};
  figures.end = {.resident_bytes = 142 * kMiB, .heap_bytes = 59 * kMiB, .descriptors = 20};
  result.by_rank = {figures, figures};
  EXPECT_EQ(ProblemWithGrowth(result), "");

  ProcessUsage& end = result.by_rank[1].end;
  end.resident_bytes += 1;
  EXPECT_THAT(ProblemWithGrowth(result), HasSubstr("rank 1 has 142.0 MiB resident"));
  EXPECT_EQ(ProblemWithGrowth(result, false), "");
  end = figures.end;
  end.heap_bytes += 1;
  EXPECT_THAT(ProblemWithGrowth(result), HasSubstr("rank 1 has 59.0 MiB in use"));
  end = {.resident_bytes = kMiB, .heap_bytes = kMiB, .descriptors = 21};
  EXPECT_THAT(ProblemWithGrowth(result, false), HasSubstr("rank 1 has 21 descriptors"));
}

}  // namespace
}  // namespace onebit::soak
