// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `ucx` with ranks as processes: the conformance program, and ranks that are killed. UCX
// does not survive a fork, so nothing here starts it in the process of the test itself.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "tests/transports/conformance.h"
#include "tests/transports/rank_processes.h"
#include "tests/transports/test_endpoint.h"
#include "tests/transports/ucx_cases.h"
#include "tests/transports/ucx_fixture.h"

namespace onebit::ucx {
namespace {

using conformance::Expect;
using conformance::OutOfBand;

constexpr uint64_t kSeed = 20240611;

// Starts the transport in the process of a rank.
conformance::Subject SubjectOf(const StartedTransport& started) {
  Expect(started.start_result() == onebitSuccess, started.warnings());
  return {.transport = &started.transport(),
          .properties = started.properties(),
          .channels = &started.channels(),
          .run_ranks = nullptr,
          .delivers_after_close = true,
          .open_close_rounds = 20,
          .seed = kSeed};
}

class UcxProcessesTest : public ::testing::TestWithParam<Case> {};

TEST_P(UcxProcessesTest, Passes) {
  const Case& one = GetParam();
  EXPECT_EQ(conformance::RunRankProcesses(one.nranks,
                                          [&one](OutOfBand& oob) {
                                            const StartedTransport started(one.settings);
                                            one.check.run(SubjectOf(started), oob);
                                          }),
            "");
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, UcxProcessesTest, ::testing::ValuesIn(CasesFor({2, 4}, {})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Tcp, UcxProcessesTest,
                         ::testing::ValuesIn(CasesFor({2, 4}, {{"ONEBIT_UCX_TLS", "tcp"}})),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Rendezvous, UcxProcessesTest,
                         ::testing::ValuesIn(CasesFor({4}, {{"ONEBIT_UCX_RENDEZVOUS", "1"}})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(RendezvousTcp, UcxProcessesTest,
                         ::testing::ValuesIn(CasesFor({4}, {{"ONEBIT_UCX_RENDEZVOUS", "1"},
                                                            {"ONEBIT_UCX_TLS", "tcp"}})),
                         NameOf);

// A machine with another network names settings for it, as "NAME=VALUE;NAME=VALUE"
// (tests/rdma/run).
std::vector<Case> CasesOfThisMachine() {
  const char* const given = std::getenv("ONEBIT_TEST_UCX");
  if (given == nullptr) return {};
  SettingTexts settings;
  std::istringstream texts(given);
  for (std::string text; std::getline(texts, text, ';');) {
    const size_t end = text.find('=');
    settings[text.substr(0, end)] = text.substr(end + 1);
  }
  return CasesFor({2, 3}, settings);
}

INSTANTIATE_TEST_SUITE_P(ThisMachine, UcxProcessesTest, ::testing::ValuesIn(CasesOfThisMachine()),
                         NameOf);

// Rank 1 is killed while it receives a long payload from rank 0 and all other ranks wait for it.
void SurviveTheDeathOfRank1(OutOfBand& oob, const char* rendezvous) {
  const StartedTransport started(
      SettingTexts{{"ONEBIT_UCX_TLS", "tcp"}, {"ONEBIT_UCX_RENDEZVOUS", rendezvous}});
  conformance::Endpoint endpoint(SubjectOf(started), oob);
  const std::string payload(64 << 20, 's');
  std::string taken(payload.size(), 'b');
  char header[kMessageHeaderBytes];
  if (endpoint.rank() == 1) {
    const auto receive = endpoint.StartReceive(0, header);
    endpoint.Await(receive, TransferState::kHeader);
    endpoint.Check(
        endpoint.channel().Accept(receive, testing::WritableBytesOf(taken.data(), taken.size())),
        "Accept");
    for (int i = 0; i < 20; ++i) endpoint.channel().Progress();
    raise(SIGKILL);
  }
  const auto receive = endpoint.StartReceive(1, header);
  MessageRequest send = nullptr;
  if (endpoint.rank() == 0) send = endpoint.StartSend(1, "h", payload.data(), payload.size());
  const auto start = conformance::Clock::now();
  const onebitResult_t result = endpoint.AwaitError(receive);
  Expect(result == onebitPeerLost, "a receive from a killed rank failed with ", result);
  if (send != nullptr) {
    const onebitResult_t send_result = endpoint.AwaitError(send);
    Expect(send_result == onebitPeerLost, "a send to a killed rank failed with ", send_result);
  }
  Expect(endpoint.peer_error(1) == onebitPeerLost, "the sink was told ", endpoint.peer_error(1));
  Expect(conformance::IsWithin(start, 2000), "noticed after ", conformance::SecondsSince(start),
         " s");
  const auto end = conformance::Clock::now();
  endpoint.Close();
  Expect(conformance::IsWithin(end, 1000), "close took ", conformance::SecondsSince(end), " s");
}

TEST(UcxKillTest, SurvivorsLearnOfADeathOverTcp) {
  for (const int nranks : {2, 3}) {
    for (const char* rendezvous : {"0", "1"}) {
      ::testing::internal::CaptureStderr();
      const std::string failure = conformance::RunRankProcesses(
          nranks, [rendezvous](OutOfBand& oob) { SurviveTheDeathOfRank1(oob, rendezvous); }, {1});
      EXPECT_EQ(failure, "") << nranks << " ranks, rendezvous " << rendezvous;
      // Results and the sink report the death, so nothing needs to be printed.
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    }
  }
}

// Over shared memory nobody sees the death; abort, as the library's control channel would call it,
// must not wait for the dead.
TEST(UcxKillTest, AbortAndCloseDoNotWaitForTheDeadOverSharedMemory) {
  EXPECT_EQ(conformance::RunRankProcesses(
                2,
                [](OutOfBand& oob) {
                  const StartedTransport started;
                  conformance::Endpoint endpoint(SubjectOf(started), oob);
                  if (endpoint.rank() == 1) raise(SIGKILL);
                  std::vector<char> payload(1000);
                  MessageRequest send = nullptr;
                  onebitResult_t result = onebitSuccess;
                  while (result == onebitSuccess) {  // until the window is full
                    result = endpoint.channel().Send(
                        1, testing::BytesOf("h"), testing::BytesOf(payload.data(), payload.size()),
                        &send);
                  }
                  Expect(result == onebitInProgress, "Send returned ", result);
                  const auto start = conformance::Clock::now();
                  endpoint.Check(endpoint.channel().Abort(), "Abort");
                  endpoint.Close();
                  Expect(conformance::IsWithin(start, 500), "it took ",
                         conformance::SecondsSince(start), " s");
                },
                {1}),
            "");
}

}  // namespace
}  // namespace onebit::ucx
