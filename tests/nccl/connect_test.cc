// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Connecting ranks of transport nccl, and failures to connect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/nccl/modes.h"
#include "tests/nccl/ranks.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class ConnectTest : public ::testing::TestWithParam<Mode> {
 protected:
  void TearDown() override {
    // Threads in which NCCL waits for missing ranks free what they have created.
    ONEBIT_OF_MODE(GetParam(), onebitTestNcclEndInits)();
    const Counts counts = Counts::GetAtTheEnd(GetParam());
    EXPECT_EQ(counts.live_comms, 0u);
    EXPECT_EQ(counts.after_end, 0u);
    EXPECT_EQ(counts.at_a_time, 0u);
  }
  const Plugin plugin_{GetParam().settings};
};

INSTANTIATE_TEST_SUITE_P(Modes, ConnectTest, ::testing::ValuesIn(kModes), NameOf);

TEST_P(ConnectTest, EndsWhenItsTimeIsOver) {
  const UseDevice device(0);
  Endpoint endpoint;
  ASSERT_EQ(endpoint.Open(plugin_, 0, 2), onebitSuccess);
  const auto address = endpoint.Address();
  const auto start = Clock::now();
  EXPECT_EQ(endpoint.Connect({address, address}, 200), onebitTimeout);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200));
  EXPECT_THAT(Plugin::warnings(), HasSubstr("not all of 2 ranks called NCCL within 200 ms"));
  EXPECT_EQ(endpoint.GroupBegin(), onebitTimeout);
}

TEST_P(ConnectTest, ComesBeforeMessages) {
  const UseDevice device(0);
  Endpoint endpoint;
  ASSERT_EQ(endpoint.Open(plugin_, 0, 1), onebitSuccess);
  EXPECT_EQ(endpoint.GroupBegin(), onebitInvalidUsage);
  EXPECT_EQ(endpoint.Send(0, nullptr, 0, nullptr), onebitInvalidUsage);
  EXPECT_EQ(endpoint.AsyncError(), onebitSuccess);
}

TEST_P(ConnectTest, EndsWhenItIsAborted) {
  const UseDevice device(0);
  Endpoint endpoint;
  ASSERT_EQ(endpoint.Open(plugin_, 0, 2), onebitSuccess);
  const auto address = endpoint.Address();
  std::thread aborter([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    EXPECT_EQ(endpoint.Abort(), onebitSuccess);
  });
  EXPECT_EQ(endpoint.Connect({address, address}, 60'000), onebitAborted);
  aborter.join();
}

TEST_P(ConnectTest, ReportsWhatNcclSays) {
  const bool has_config = GetParam().library.empty();
  const char* function = has_config ? "ncclCommInitRankConfig" : "ncclCommInitRank";
  const UseDevice device(0);
  Endpoint endpoint;
  ASSERT_EQ(endpoint.Open(plugin_, 0, 1), onebitSuccess);
  const auto address = endpoint.Address();
  ONEBIT_OF_MODE(GetParam(), onebitTestNcclFail)(function, 1, ncclSystemError);
  EXPECT_EQ(endpoint.Connect({address}), onebitSystemError);
  EXPECT_THAT(Plugin::warnings(), HasSubstr(std::string(function) + " failed: "));
  if (has_config) {
    EXPECT_THAT(Plugin::warnings(), HasSubstr("was told to fail"));
  }
}

TEST_P(ConnectTest, RefusesTwoRanksOnOneDevice) {
  AddressExchange exchange(2);
  const auto body = [&](int rank) {
    const UseDevice device(0);
    Endpoint endpoint;
    EXPECT_EQ(endpoint.Open(plugin_, rank, 2), onebitSuccess);
    EXPECT_EQ(endpoint.Connect(exchange.Exchange(rank, endpoint.Address())), onebitInvalidUsage);
    exchange.Wait();
  };
  RunThreads(2, body);
  // 2.10 has no error text of its own.
  if (GetParam().library.empty()) {
    EXPECT_THAT(Plugin::warnings(), HasSubstr("Duplicate GPU"));
  }
}

TEST_P(ConnectTest, RefusesAddressesOfOthers) {
  const UseDevice device(0);
  Endpoint endpoint;
  ASSERT_EQ(endpoint.Open(plugin_, 0, 2, 1), onebitSuccess);
  Endpoint other;
  ASSERT_EQ(other.Open(plugin_, 1, 2, 2), onebitSuccess);
  const auto own = endpoint.Address();
  EXPECT_EQ(endpoint.Connect({own, other.Address()}), onebitInvalidArgument);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("rank 1 belongs to another communicator"));

  auto wrong = own;
  wrong.pop_back();
  EXPECT_EQ(endpoint.Connect({own, wrong}), onebitInvalidArgument);
  wrong = std::vector<std::byte>(own.size());
  EXPECT_EQ(endpoint.Connect({own, wrong}), onebitInvalidArgument);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("the address of rank 1 is from another transport"));
}

TEST_P(ConnectTest, RefusesAnotherRelease) {
  const UseDevice device(0);
  Endpoint endpoint;
  ASSERT_EQ(endpoint.Open(plugin_, 0, 2), onebitSuccess);
  const auto own = endpoint.Address();
  const bool is_new = GetParam().library.empty();
  const int32_t version = is_new ? 22809 : 21003;
  auto wrong = own;
  size_t at = 0;  // index into the version
  while (std::memcmp(own.data() + at, &version, sizeof version) != 0) {
    ASSERT_LT(++at, own.size() - sizeof version);
  }
  const int32_t later = version + 1;
  std::memcpy(wrong.data() + at, &later, sizeof later);
  EXPECT_EQ(endpoint.Connect({own, wrong}), onebitMismatch);
  EXPECT_THAT(Plugin::warnings(),
              HasSubstr(is_new ? "rank 0 has NCCL 2.28.9" : "rank 0 has NCCL 2.10.3"));
}

TEST_P(ConnectTest, NeedsACurrentDevice) {
  { const UseDevice device(0); }  // CUDA has started
  Endpoint endpoint;
  EXPECT_EQ(endpoint.Open(plugin_, 0, 1), onebitInvalidUsage);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("rank 0: no device is current in this thread"));
}

TEST_P(ConnectTest, LeavesTheCurrentDeviceAsItIs) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    CUdevice device = -1;
    EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
    EXPECT_EQ(device, self.rank);
    // The same from a thread without a device.
    std::thread([&] {
      EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
      CUcontext current = nullptr;
      EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
      EXPECT_EQ(current, nullptr);
    }).join();
    self.endpoint->Close();
    EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
    EXPECT_EQ(device, self.rank);
  });
}

TEST_P(ConnectTest, NamesPeers) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    char text[128] = "";
    const auto describe = Endpoint::table().describePeer;
    EXPECT_EQ(describe(self.endpoint->comm(), 1, text, sizeof text), onebitSuccess);
    EXPECT_THAT(text, HasSubstr("NCCL 2."));
    EXPECT_THAT(text, HasSubstr("to GPU "));
    EXPECT_THAT(text, HasSubstr(" of host "));
    EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
    EXPECT_EQ(describe(self.endpoint->comm(), 0, text, sizeof text), onebitSuccess);
    EXPECT_EQ(describe(self.endpoint->comm(), 2, text, sizeof text), onebitInvalidArgument);
  });
}

}  // namespace
}  // namespace onebit::testing
