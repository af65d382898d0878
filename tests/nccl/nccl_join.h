// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// JoinTest: an application's communicators, and endpoints joined to them.
#pragma once

#include <gtest/gtest.h>

#include <climits>
#include <functional>

#include "tests/nccl/modes.h"
#include "tests/nccl/ranks.h"

namespace onebit::testing {

// The parameter decides if its communicators block, do not block, or are of an old release.
class JoinTest : public ::testing::TestWithParam<Mode> {
 protected:
  void TearDown() override {
    const Counts counts = Counts::Get(GetParam());
    EXPECT_EQ(counts.live_comms, 0u);
    EXPECT_EQ(counts.after_end, 0u);
    EXPECT_EQ(counts.at_a_time, 0u);
  }

  bool is_old() const { return !GetParam().library.empty(); }

  ncclUniqueId MakeId() const {
    ncclUniqueId id{};
    EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclGetUniqueId)(&id), ncclSuccess);
    return id;
  }

  // Not ready yet if it does not block.
  ncclComm_t Make(const ncclUniqueId& id, int rank, int ranks) const {
    ncclComm_t comm = nullptr;
    if (is_old()) {
      EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclCommInitRank)(&comm, ranks, id, rank), ncclSuccess);
      return comm;
    }
    return MakeOfKind(id, rank, ranks, GetParam().name == "Blocking");
  }
  ncclComm_t MakeOfKind(const ncclUniqueId& id, int rank, int ranks, bool is_blocking) const {
    ncclComm_t comm = nullptr;
    ncclConfig_t config{.size = sizeof config,
                        .magic = 0xcafebeef,
                        .version = 22809,
                        .blocking = is_blocking ? 1 : 0,
                        .cgaClusterSize = INT_MIN};
    const auto result =
        ONEBIT_OF_MODE(GetParam(), ncclCommInitRankConfig)(&comm, ranks, id, rank, &config);
    EXPECT_EQ(result, is_blocking || ranks == 1 ? ncclSuccess : ncclInProgress);
    return comm;
  }

  // Ends a communicator as its application does.
  void End(ncclComm_t comm) const {
    EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclCommAbort)(comm), ncclSuccess);
  }

  struct Joined {
    onebitResult_t result = onebitSuccess;
    void* group = nullptr;
    int rank = -1;
    int ranks = -1;
  };
  Joined Join(const void* native, size_t bytes = sizeof(ncclComm_t),
              uint64_t timeout_ms = kTimeoutMs) const {
    Joined joined;
    joined.result =
        Plugin::functions().adopt(plugin_.transport_context(), native, bytes, timeout_ms,
                                  &joined.group, &joined.rank, &joined.ranks);
    return joined;
  }
  static void Release(const Joined& joined) {
    EXPECT_EQ(Plugin::functions().release(joined.group), onebitSuccess);
  }

  // Runs `body` on each rank with an endpoint joined to a communicator of the application, which
  // `body` ends.
  void RunJoined(int ranks, const std::function<void(Rank&, ncclComm_t)>& body) const {
    const ncclUniqueId id = MakeId();
    AddressExchange exchange(ranks);
    RunThreads(ranks, [&](int rank) {
      ncclComm_t comm = Make(id, rank, ranks);
      const Joined joined = Join(&comm);
      EXPECT_EQ(joined.result, onebitSuccess) << Plugin::warnings();
      EXPECT_EQ(joined.rank, rank);
      EXPECT_EQ(joined.ranks, ranks);
      const Stream stream;
      Endpoint endpoint;
      EXPECT_EQ(endpoint.Open(plugin_, rank, ranks, 9, joined.group), onebitSuccess);
      Release(joined);
      EXPECT_EQ(endpoint.Connect(exchange.Exchange(rank, endpoint.Address())), onebitSuccess)
          << Plugin::warnings();
      Rank self{
          .rank = rank, .ranks = ranks, .endpoint = &endpoint, .stream = &stream, .meet = [&] {
            exchange.Wait();
          }};
      body(self, comm);
    });
  }

  // The application has loaded its NCCL before.
  void* const library_ = LibraryOf(GetParam());
  const Plugin plugin_{GetParam().settings};
};

}  // namespace onebit::testing
