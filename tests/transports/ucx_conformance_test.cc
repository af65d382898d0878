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
#include "tests/transports/ucx_cases.h"
#include "tests/transports/ucx_fixture.h"

namespace onebit::ucx {
namespace {

constexpr uint64_t kSeed = 20240611;

conformance::Subject SubjectOf(const StartedTransport& started) {
  return {.transport = &started.transport(),
          .properties = started.properties(),
          .channels = &started.channels(),
          .run_ranks = conformance::RunRankThreads,
          .delivers_after_close = true,
          .open_close_rounds = 60,
          .seed = kSeed};
}

class UcxConformanceTest : public ::testing::TestWithParam<Case> {};

TEST_P(UcxConformanceTest, Passes) {
  const StartedTransport started(GetParam().settings);
  ASSERT_EQ(started.start_result(), onebitSuccess) << started.warnings();
  std::cout << "seed " << kSeed << '\n';
  EXPECT_EQ(conformance::RunCheck(SubjectOf(started), GetParam().check, GetParam().nranks), "")
      << started.warnings();
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 2, 3, 5}, {})), NameOf);

INSTANTIATE_TEST_SUITE_P(Tcp, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 2, 3}, {{"ONEBIT_UCX_TLS", "tcp"}})),
                         NameOf);

// No payload travels with its header, but all follow without being asked for.
INSTANTIATE_TEST_SUITE_P(NothingEager, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({3}, {{"ONEBIT_UCX_EAGER_BYTES", "0"}})),
                         NameOf);

// Every payload that is not eager waits for its accept.
INSTANTIATE_TEST_SUITE_P(NothingEarly, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 3}, {{"ONEBIT_UCX_EARLY_BYTES", "0"}})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(NothingEarlyTcp, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({3}, {{"ONEBIT_UCX_EARLY_BYTES", "0"},
                                                            {"ONEBIT_UCX_TLS", "tcp"}})),
                         NameOf);

// Pieces go by UCX's rendezvous protocol.
INSTANTIATE_TEST_SUITE_P(Rendezvous, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({3}, {{"ONEBIT_UCX_RENDEZVOUS", "1"}})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(RendezvousTcp, UcxConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 3}, {{"ONEBIT_UCX_RENDEZVOUS", "1"},
                                                               {"ONEBIT_UCX_TLS", "tcp"}})),
                         NameOf);

}  // namespace
}  // namespace onebit::ucx
