// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Conformance program on transport `ucx`, with ranks as threads of one process.
#include <gtest/gtest.h>

#include <initializer_list>
#include <iostream>
#include <string>
#include <vector>

#include "tests/support/allocation_counter.h"
#include "tests/transports/conformance.h"
#include "tests/transports/rank_threads.h"
#include "tests/transports/ucx_fixture.h"

namespace onebit::ucx {
namespace {

constexpr uint64_t kSeed = 20240611;

conformance::Subject SubjectOf(const StartedTransport& started) {
  return {.transport = &started.api(),
          .context = started.context(),
          .run_ranks = conformance::RunRankThreads,
          .delivers_after_close = true,
          .open_close_rounds = 60,
          .seed = kSeed};
}

struct Case {
  conformance::Check check;
  int nranks;
  SettingTexts settings;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.check.name << " on " << one.nranks << " ranks";
}

std::vector<Case> CasesFor(std::initializer_list<int> rank_counts, const SettingTexts& settings) {
  std::vector<Case> cases;
  for (const conformance::Check& check : conformance::AllChecks()) {
    for (const int nranks : rank_counts) {
      if (nranks >= check.min_ranks) cases.push_back({check, nranks, settings});
    }
  }
  return cases;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.check.name) + "_" + std::to_string(info.param.nranks);
}

class UcxConformanceTest : public ::testing::TestWithParam<Case> {};

TEST_P(UcxConformanceTest, Passes) {
  const StartedTransport started(GetParam().settings);
  ASSERT_EQ(started.init_result(), onebitSuccess) << started.log();
  std::cout << "seed " << kSeed << '\n';
  EXPECT_EQ(conformance::RunCheck(SubjectOf(started), GetParam().check, GetParam().nranks), "")
      << started.log();
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 2, 3, 5}, {})), NameOf);

INSTANTIATE_TEST_SUITE_P(Tcp, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 2, 3}, {{"ONEBIT_UCX_TLS", "tcp"}})),
                         NameOf);

// Every payload waits for its accept.
INSTANTIATE_TEST_SUITE_P(NothingEager, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({3}, {{"ONEBIT_UCX_EAGER_BYTES", "0"}})),
                         NameOf);

}  // namespace
}  // namespace onebit::ucx
