// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Conformance program on transport `socket`: ranks as threads and as processes, over shared memory
// and over TCP.
#include <gtest/gtest.h>

#include <initializer_list>
#include <iostream>
#include <string>
#include <vector>

#include "plugins/transport_socket/socket_transport.h"
#include "tests/support/transport_host.h"
#include "tests/transports/conformance.h"
#include "tests/transports/rank_processes.h"
#include "tests/transports/rank_threads.h"

namespace onebit::sockets {
namespace {

constexpr uint64_t kSeed = 20240611;

struct Case {
  conformance::Check check;
  int nranks;
  testing::SettingTexts settings;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.check.name << " on " << one.nranks << " ranks";
}

std::vector<Case> CasesFor(std::initializer_list<int> rank_counts,
                           const testing::SettingTexts& settings) {
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

class StartedTransport : public testing::StartedTransport {
 public:
  explicit StartedTransport(const testing::SettingTexts& settings)
      : testing::StartedTransport(*Functions(), settings) {}
};

conformance::Subject SubjectOf(const StartedTransport& started) {
  conformance::Expect(started.start_result() == onebitSuccess, started.warnings());
  return {.transport = &started.transport(),
          .properties = started.properties(),
          .channels = &started.channels(),
          .run_ranks = conformance::RunRankThreads,
          .delivers_after_close = true,
          .open_close_rounds = 60,
          .seed = kSeed};
}

class SocketConformanceTest : public ::testing::TestWithParam<Case> {};

TEST_P(SocketConformanceTest, Passes) {
  const StartedTransport started(GetParam().settings);
  std::cout << "seed " << kSeed << '\n';
  EXPECT_EQ(conformance::RunCheck(SubjectOf(started), GetParam().check, GetParam().nranks), "")
      << started.warnings();
}

const testing::SettingTexts kTcp = {{"ONEBIT_SOCKET_SHARED_MEMORY", "0"}};
const testing::SettingTexts kSealedTcp = {{"ONEBIT_SOCKET_SHARED_MEMORY", "0"},
                                          {"ONEBIT_SOCKET_SEAL", "1"}};

INSTANTIATE_TEST_SUITE_P(SharedMemory, SocketConformanceTest,
                         ::testing::ValuesIn(CasesFor({1, 2, 3, 5}, {})), NameOf);
INSTANTIATE_TEST_SUITE_P(Tcp, SocketConformanceTest, ::testing::ValuesIn(CasesFor({2, 3}, kTcp)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(SealedTcp, SocketConformanceTest,
                         ::testing::ValuesIn(CasesFor({3}, kSealedTcp)), NameOf);

class SocketProcessesTest : public ::testing::TestWithParam<Case> {};

TEST_P(SocketProcessesTest, Passes) {
  const Case& one = GetParam();
  EXPECT_EQ(conformance::RunRankProcesses(one.nranks,
                                          [&one](conformance::OutOfBand& oob) {
                                            const StartedTransport started(one.settings);
                                            one.check.run(SubjectOf(started), oob);
                                          }),
            "");
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, SocketProcessesTest,
                         ::testing::ValuesIn(CasesFor({2, 4}, {})), NameOf);
INSTANTIATE_TEST_SUITE_P(Tcp, SocketProcessesTest, ::testing::ValuesIn(CasesFor({2, 4}, kTcp)),
                         NameOf);

class SocketMixedTest : public ::testing::TestWithParam<Case> {};

// The last rank reaches the others by TCP, and they each other through shared memory: a rank sleeps
// on both.
TEST_P(SocketMixedTest, Passes) {
  const Case& one = GetParam();
  EXPECT_EQ(conformance::RunRankProcesses(
                one.nranks,
                [&one](conformance::OutOfBand& oob) {
                  const StartedTransport started(
                      oob.rank() == one.nranks - 1 ? kTcp : testing::SettingTexts{});
                  one.check.run(SubjectOf(started), oob);
                }),
            "");
}

INSTANTIATE_TEST_SUITE_P(SharedMemoryAndTcp, SocketMixedTest,
                         ::testing::ValuesIn(CasesFor({4}, {})), NameOf);

}  // namespace
}  // namespace onebit::sockets
