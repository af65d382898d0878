// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A rank that lacks descriptors for its peers.
#include "plugins/transport_socket/mesh.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/descriptor_limit.h"
#include "tests/support/sanitizers.h"

namespace onebit::sockets {
namespace {

using testing::DescriptorLimit;

SocketAddress Loopback() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address));
}

// Rank 0 of several, and connections to its port that say nothing.
class ShortMeshTest : public ::testing::Test {
 protected:
  // Connects rank 0 of `ranks` while there are `connections`, and a descriptor for one of them.
  onebitResult_t Connect(int ranks, size_t connections, std::chrono::milliseconds time) {
    Mesh mesh({.rank = 0,
               .nranks = ranks,
               .comm_id = 1,
               .key = {},
               .doorbell = -1,
               .shares_memory = false,
               .eager_bytes = 0,
               .interface = Loopback(),
               .server = Loopback()});
    std::vector<Address> addresses(static_cast<size_t>(ranks));
    if (mesh.Listen(&addresses[0], &problem_) != onebitSuccess) return onebitInternalError;
    std::vector<Descriptor> silent;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (size_t i = 0; i < connections; ++i) {
      auto socket = onebit::Connect(SocketAddressOf(addresses[0]), deadline);
      if (!socket.ok()) return onebitInternalError;
      silent.push_back(std::move(socket).value());
    }
    const DescriptorLimit limit(1);
    std::vector<Connection> made;
    return mesh.Connect(
        addresses, std::chrono::steady_clock::now() + time, [] { return false; }, &made, &problem_);
  }

  std::string problem_;
};

// Ranks that gave way to each other would come again until the time is over.
TEST_F(ShortMeshTest, AsManyConnectionsAsRanksAreMissingNeedDescriptors) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  EXPECT_EQ(Connect(3, 2, std::chrono::seconds(4)), onebitSystemError) << problem_;
  EXPECT_EQ(problem_, kTooFewDescriptors);
}

TEST_F(ShortMeshTest, MoreOfThemGiveWayToOthers) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  EXPECT_EQ(Connect(1, 3, std::chrono::seconds(4)), onebitSuccess) << problem_;
}

}  // namespace
}  // namespace onebit::sockets
