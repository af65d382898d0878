// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Conformance program on transport `local`.
#include <gtest/gtest.h>

#include <initializer_list>
#include <iostream>
#include <string>
#include <vector>

#include "tests/support/allocation_counter.h"
#include "tests/transports/conformance.h"
#include "tests/transports/local_fixture.h"
#include "tests/transports/rank_threads.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ONEBIT_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ONEBIT_IS_SANITIZED 1
#endif
#endif

namespace onebit::local {
namespace {

#if defined(ONEBIT_IS_SANITIZED)
// Sanitizers are slow and delay the reuse of freed memory; LeakSanitizer finds leaks instead.
constexpr int kOpenCloseRounds = 300;
constexpr uint64_t kMostLeakedBytes = 0;
#else
constexpr int kOpenCloseRounds = 3000;
constexpr uint64_t kMostLeakedBytes = 4 << 20;
#endif
constexpr uint64_t kSeed = 20240611;

conformance::Subject SubjectOf(const StartedTransport& started) {
  return {.transport = &started.transport(),
          .properties = started.properties(),
          .channels = &started.channels(),
          .run_ranks = conformance::RunRankThreads,
          .allocations = testing::AllocationsOfThisThread,
          .delivers_after_close = true,
          .open_close_rounds = kOpenCloseRounds,
          .most_leaked_bytes = kMostLeakedBytes,
          .seed = kSeed};
}

struct Case {
  conformance::Check check;
  int nranks;
  std::string eager_bytes;  // ONEBIT_LOCAL_EAGER_BYTES; empty: not set
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.check.name << " on " << one.nranks << " ranks";
}

std::vector<Case> CasesFor(std::initializer_list<int> rank_counts, const std::string& eager_bytes) {
  std::vector<Case> cases;
  for (const conformance::Check& check : conformance::AllChecks()) {
    for (const int nranks : rank_counts) {
      if (nranks >= check.min_ranks) cases.push_back({check, nranks, eager_bytes});
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.check.name) + "_" + std::to_string(info.param.nranks);
}

class LocalConformanceTest : public ::testing::TestWithParam<Case> {};

TEST_P(LocalConformanceTest, Passes) {
  const StartedTransport started(GetParam().eager_bytes);
  ASSERT_EQ(started.start_result(), onebitSuccess);
  std::cout << "seed " << kSeed << '\n';
  EXPECT_EQ(conformance::RunCheck(SubjectOf(started), GetParam().check, GetParam().nranks), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, LocalConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 2, 3, 5, 8}, "")), NameOf);

// Every payload is offered, none is copied through the inbox.
INSTANTIATE_TEST_SUITE_P(NothingEager, LocalConformanceTest,
                         ::testing::ValuesIn(CasesFor({3}, "0")), NameOf);

}  // namespace
}  // namespace onebit::local
