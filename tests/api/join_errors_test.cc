// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Joins that fail: wrong arguments, ranks that differ, are missing, know another secret, or go
// silent.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/join_ranks.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadlines.h"
#include "tests/support/tcp_proxy.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Long enough for ranks that do join.
onebitConfig_t ShortConfig() {
  onebitConfig_t config = LocalConfig();
  config.connectTimeoutMs = static_cast<int32_t>(PacedMs(300));
  return config;
}

// Makes one rank's call with wrong arguments; nothing is sent.
Outcome Refused(onebitComm_t* comm, int nranks, const onebitUniqueId& id, int rank,
                const onebitConfig_t& config) {
  return CallHere([&] { return onebitCommInitRankConfig(comm, nranks, id, rank, &config); });
}

void ExpectRefusal(const Outcome& outcome, const char* text) {
  EXPECT_EQ(outcome.result, onebitInvalidArgument) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(text));
}

TEST(JoinArgumentsTest, WhatIsWrongIsNamed) {
  onebitUniqueId id = {};
  const onebitConfig_t config = LocalConfig();
  const auto untouched = reinterpret_cast<onebitComm_t>(8);
  onebitComm_t comm = untouched;
  EXPECT_EQ(onebitGetUniqueId(nullptr), onebitInvalidArgument);
  ExpectRefusal(Refused(nullptr, 1, id, 0, config), "comm is NULL");
  ExpectRefusal(Refused(&comm, 0, id, 0, config), "nranks is 0: a communicator has 1 to 65536");
  ExpectRefusal(Refused(&comm, -1, id, 0, config), "nranks is -1");
  ExpectRefusal(Refused(&comm, 65'537, id, 0, config), "nranks is 65537");
  ExpectRefusal(Refused(&comm, 2, id, 2, config), "rank is 2: with nranks 2 it must be 0 to 1");
  ExpectRefusal(Refused(&comm, 2, id, -1, config), "rank is -1");
  ExpectRefusal(Refused(&comm, 2, id, 0, config), "not a onebit unique id");
  std::memset(id.internal, 'x', sizeof(id.internal));
  ExpectRefusal(Refused(&comm, 2, id, 0, config), "not a onebit unique id");
  ExpectRefusal(CallHere([&] { return onebitCommInitRank(&comm, 2, id, 0); }),
                "not a onebit unique id");
  EXPECT_EQ(comm, untouched);
}

TEST(JoinArgumentsTest, MembersOutOfRangeAreNamed) {
  const onebitUniqueId id = {};
  onebitComm_t comm = nullptr;
  struct Case {
    int32_t onebitConfig_t::*member;
    int32_t value;
    const char* text;
  };
  const Case cases[] = {
      {&onebitConfig_t::connectTimeoutMs, 0, "connectTimeoutMs is 0, but must be 1 to 86400000"},
      {&onebitConfig_t::connectTimeoutMs, 86'400'001, "connectTimeoutMs is 86400001"},
      {&onebitConfig_t::heartbeatMs, -1, "heartbeatMs is -1, but must be 1 to 3600000"},
      {&onebitConfig_t::lossTimeoutMs, 0, "lossTimeoutMs is 0"},
      {&onebitConfig_t::collectiveTimeoutMs, -5, "collectiveTimeoutMs is -5"},
      {&onebitConfig_t::lossTimeoutMs, 1000,
       "lossTimeoutMs (ONEBIT_LOSS_TIMEOUT_MS) is 1000 and "
       "heartbeatMs (ONEBIT_HEARTBEAT_MS) 1000"},
      {&onebitConfig_t::heartbeatMs, 15'000,
       "is 15000 and heartbeatMs (ONEBIT_HEARTBEAT_MS) 15000"},
  };
  for (const auto& [member, value, text] : cases) {
    onebitConfig_t config = LocalConfig();
    config.*member = value;
    ExpectRefusal(Refused(&comm, 2, id, 0, config), text);
  }
  onebitConfig_t config = LocalConfig();
  config.magic ^= 1;
  ExpectRefusal(Refused(&comm, 2, id, 0, config), "ONEBIT_CONFIG_INIT");
}

// Expects the mismatch on both ranks, with both values in the text.
void ExpectMismatch(const std::vector<JoinCall>& calls, const std::vector<std::string>& texts) {
  for (const Joined& joined : JoinRanks(NewUniqueId(), calls)) {
    EXPECT_EQ(joined.outcome.result, onebitMismatch);
    for (const std::string& text : texts) EXPECT_THAT(joined.outcome.text, HasSubstr(text));
  }
}

TEST(JoinMismatchTest, NumbersOfRanks) {
  ExpectMismatch({{.rank = 0, .nranks = 3}, {.rank = 1, .nranks = 2}},
                 {"nranks differs between ranks: rank ", " has 3", " has 2"});
}

TEST(JoinMismatchTest, SettingsThatMustBeEqual) {
  std::vector<JoinCall> calls = {{.rank = 0, .nranks = 2}, {.rank = 1, .nranks = 2}};
  calls[1].config.heartbeatMs = 77;
  ExpectMismatch(calls,
                 {"ONEBIT_HEARTBEAT_MS differs between ranks: rank 0 has 1000, rank 1 has 77",
                  "set it to the same value on all ranks"});
  calls[1].config = LocalConfig();
  calls[0].config.lossTimeoutMs = 4321;
  ExpectMismatch(
      calls, {"ONEBIT_LOSS_TIMEOUT_MS differs between ranks: rank 0 has 4321, rank 1 has 15000"});
  calls[0].config = LocalConfig();
  calls[0].config.hostRanks = 4;
  ExpectMismatch(calls, {"ONEBIT_HOST_RANKS differs between ranks: rank 0 has 4, rank 1 has 0"});
}

TEST(JoinMismatchTest, TimeOutsMayDiffer) {
  std::vector<JoinCall> calls = {{.rank = 0, .nranks = 2}, {.rank = 1, .nranks = 2}};
  calls[1].config.collectiveTimeoutMs = 10'000;
  calls[1].config.connectTimeoutMs = 9'000;
  for (const Joined& joined : JoinRanks(NewUniqueId(), calls)) {
    EXPECT_EQ(joined.outcome.result, onebitSuccess) << joined.outcome.text;
  }
}

TEST(JoinMismatchTest, OneRankTwice) {
  const auto joined =
      JoinRanks(NewUniqueId(), {{.rank = 1, .nranks = 3}, {.rank = 1, .nranks = 3}});
  for (const Joined& one : joined) {
    EXPECT_EQ(one.outcome.result, onebitMismatch);
    EXPECT_THAT(one.outcome.text, HasSubstr("rank 1 joined twice"));
  }
}

TEST(JoinFailureTest, AMissingRankIsNamedWithinTheTimeOut) {
  const onebitConfig_t config = ShortConfig();
  std::vector<JoinCall> calls;
  for (const int rank : {0, 1, 3}) {
    calls.push_back({.rank = rank, .nranks = 4, .config = config});
  }
  int timeouts = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto ranks = JoinRanks(NewUniqueId(), calls);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited.count(), config.connectTimeoutMs / 1000.0) << "no rank gives up earlier";
  for (const Joined& joined : ranks) {
    const Outcome& outcome = joined.outcome;
    timeouts += outcome.result == onebitTimeout;
    // A rank that another rank has told of the time-out names the same missing rank.
    EXPECT_TRUE(outcome.result == onebitTimeout || outcome.result == onebitRemoteError);
    // The text counts from when the rank has met the others.
    EXPECT_GE(NumberAfter(outcome.text, "rank 2 missing (1 of 4) after "),
              config.connectTimeoutMs / 2000.0)
        << outcome.text;
  }
  EXPECT_GE(timeouts, 1);
}

TEST(JoinFailureTest, AnIdWithAnotherSecretIsNotAuthenticated) {
  const onebitUniqueId id = NewUniqueId();
  onebitUniqueId forged = id;
  forged.internal[20] ^= 1;
  const auto refused = JoinRanks(forged, {{.rank = 0, .nranks = 2}});
  EXPECT_EQ(refused[0].outcome.result, onebitNotAuthenticated) << refused[0].outcome.text;
  // The others are not affected.
  const auto joined = JoinRanks(id, {{.rank = 0, .nranks = 2}, {.rank = 1, .nranks = 2}});
  EXPECT_EQ(joined[0].outcome.result, onebitSuccess) << joined[0].outcome.text;
}

TEST(JoinFailureTest, ARankThatFailsWhileItJoinsIsNamedByTheOthers) {
  std::vector<JoinCall> calls;
  for (int rank = 0; rank < 3; ++rank) calls.push_back({.rank = rank, .nranks = 3});
  calls[2].config.transport = "pigeon";
  const auto joined = JoinRanks(NewUniqueId(), calls);
  EXPECT_EQ(joined[2].outcome.result, onebitInvalidArgument);
  EXPECT_THAT(joined[2].outcome.text, HasSubstr("there is no transport \"pigeon\""));
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(joined[rank].outcome.result, onebitRemoteError);
    EXPECT_THAT(joined[rank].outcome.text, AllOf(HasSubstr("rank 2 failed first"),
                                                 HasSubstr("there is no transport \"pigeon\"")));
  }
}

TEST(JoinFailureTest, ALateRankHearsWhyTheStartFailed) {
  const onebitUniqueId id = NewUniqueId();
  const auto early = JoinRanks(id, {{.rank = 0, .nranks = 2, .config = ShortConfig()}});
  EXPECT_EQ(early[0].outcome.result, onebitTimeout);
  const auto late = JoinRanks(id, {{.rank = 1, .nranks = 2}});
  EXPECT_EQ(late[0].outcome.result, onebitRemoteError);
  EXPECT_THAT(late[0].outcome.text,
              AllOf(HasSubstr("rank 0 failed first"), HasSubstr("rank 1 missing (1 of 2)")));
}

TEST(JoinFailureTest, WhenNobodyListensTheAddressIsNamed) {
  onebitUniqueId id = NewUniqueId();
  // A port without a listener: one that was free a moment ago.
  uint16_t port;
  {
    const Descriptor listener = ValueOrThrow(Listen(LoopbackAddress()));
    port = ValueOrThrow(LocalAddress(listener)).port();
  }
  const auto bytes = EncodeUniqueId({.address = LoopbackAddress(port), .key = {}});
  std::memcpy(id.internal, bytes.data(), bytes.size());
  const onebitConfig_t config = ShortConfig();
  const auto joined = JoinRanks(id, {{.rank = 1, .nranks = 2, .config = config}});
  EXPECT_EQ(joined[0].outcome.result, onebitTimeout);
  EXPECT_THAT(
      joined[0].outcome.text,
      AllOf(HasSubstr(Format("rank 1 of 2: not joined within {:.1f} s (ONEBIT_CONNECT_TIMEOUT_MS)",
                             config.connectTimeoutMs / 1000.0)),
            HasSubstr(LoopbackAddress(port).Text()), HasSubstr("Connection refused")));
}

// All ranks of a communicator must use the same one.
onebitConfig_t ImpatientConfig() {
  onebitConfig_t config = LocalConfig();
  config.heartbeatMs = 100;
  config.lossTimeoutMs = static_cast<int32_t>(ShortTimeoutMs());
  config.connectTimeoutMs = std::max(config.connectTimeoutMs, 10 * config.lossTimeoutMs);
  return config;
}

TEST(JoinLossTest, ARankThatFallsSilentWhileItJoinsIsNamed) {
  const onebitUniqueId id = NewUniqueId();
  ControlPeer silent(ValueOrThrow(DecodeUniqueId(id.internal)));
  const onebitConfig_t config = ImpatientConfig();
  silent.Send(Join{.rank = 1,
                   .ranks = 2,
                   .heartbeat_ms = 100,
                   .loss_timeout_ms = static_cast<uint32_t>(config.lossTimeoutMs),
                   .process = "silent:3"});
  const auto joined = JoinRanks(id, {{.rank = 0, .nranks = 2, .config = config}});
  EXPECT_EQ(joined[0].outcome.result, onebitPeerLost);
  EXPECT_THAT(joined[0].outcome.text,
              AllOf(HasSubstr("rank 0: rank 1 is gone: its process silent:3 has been silent for"),
                    HasSubstr("ONEBIT_LOSS_TIMEOUT_MS")));
}

TEST(JoinLossTest, ARankThatFallsSilentEndsEveryBlockedCall) {
  const onebitUniqueId id = NewUniqueId();
  UniqueId behind_proxy = ValueOrThrow(DecodeUniqueId(id.internal));
  TcpProxy proxy(behind_proxy.address);
  behind_proxy.address = proxy.address();
  onebitUniqueId proxy_id;
  const auto bytes = EncodeUniqueId(behind_proxy);
  std::memcpy(proxy_id.internal, bytes.data(), bytes.size());

  const onebitConfig_t config = ImpatientConfig();
  std::vector<Joined> silent;
  std::thread third(
      [&] { silent = JoinRanks(proxy_id, {{.rank = 2, .nranks = 3, .config = config}}); });
  auto joined = JoinRanks(
      id, {{.rank = 0, .nranks = 3, .config = config}, {.rank = 1, .nranks = 3, .config = config}});
  third.join();
  std::vector<UniqueComm> comms;
  for (auto* ranks : {&joined, &silent}) {
    for (Joined& one : *ranks) {
      ASSERT_EQ(one.outcome.result, onebitSuccess) << one.outcome.text;
      comms.push_back(std::move(one.comm));
    }
  }
  proxy.FallSilent();
  const UniqueComm third_comm = std::move(comms[2]);
  const auto outcomes =
      CallAll(comms, [](onebitComm_t comm) { return onebitBarrier(comm, nullptr); });
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(outcomes[rank].result, onebitPeerLost);
    EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 2 is gone"));
  }
  // The third rank sees the silence of the server's process, which is rank 0's.
  const Outcome alone = CallHere([&] { return onebitBarrier(third_comm.get(), nullptr); });
  EXPECT_EQ(alone.result, onebitPeerLost);
  EXPECT_THAT(alone.text, HasSubstr("rank 2: rank 0 is gone"));
}

}  // namespace
}  // namespace onebit::testing
