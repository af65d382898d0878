// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A soak over threads finds what is wrong, and says where.
#include <atomic>
#include <cstddef>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/common/error.h"
#include "perf/soak/soak.h"

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

// Lets `damage` change the result of the third call of such a kind on rank 1.
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

TEST(SoakTest, GrowthBeyondTheLimitIsAProblem) {
  constexpr uint64_t kMiB = 1 << 20;
  SoakResult result;
  result.was_warmed_up = true;
  RankFigures figures;
  figures.warmed_up = {.resident_bytes = 100 * kMiB, .descriptors = 20};
  figures.end = {.resident_bytes = 126 * kMiB, .descriptors = 20};
  result.by_rank = {figures, figures};
  EXPECT_EQ(ProblemWithGrowth(result), "");

  result.by_rank[1].end.resident_bytes += 1;
  EXPECT_THAT(ProblemWithGrowth(result), HasSubstr("rank 1 holds 126.0 MiB"));
  result.by_rank[1].end = {.resident_bytes = kMiB, .descriptors = 21};
  EXPECT_THAT(ProblemWithGrowth(result), HasSubstr("rank 1 has 21 descriptors"));
}

}  // namespace
}  // namespace onebit::soak
