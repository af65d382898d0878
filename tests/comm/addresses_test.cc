// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Socket addresses, unique ids that carry them, and errors that name them.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/host_lookup.h"
#include "comm/socket.h"
#include "comm/unique_id.h"

namespace onebit {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using testing::HasSubstr;

Deadline In(milliseconds time) { return std::chrono::steady_clock::now() + time; }

SocketAddress Make4(const char* host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address));
}

SocketAddress Make6(const char* host, uint16_t port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  inet_pton(AF_INET6, host, &address.sin6_addr);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&address));
}

TEST(SocketAddressTest, BothFamiliesHaveTheirText) {
  EXPECT_EQ(Make4("10.0.0.1", 4711).Text(), "10.0.0.1:4711");
  EXPECT_EQ(Make6("fd00::1", 65'535).Text(), "[fd00::1]:65535");
  SocketAddress address = Make6("::1", 1);
  address.set_port(2);
  EXPECT_EQ(address.port(), 2);
  EXPECT_EQ(address.HostText(), "::1");
}

TEST(SocketAddressTest, LoopbackIsAWholeNetwork) {
  EXPECT_TRUE(Make4("127.0.0.1", 1).is_loopback());
  EXPECT_TRUE(Make4("127.0.1.1", 1).is_loopback());
  EXPECT_TRUE(Make6("::1", 1).is_loopback());
  EXPECT_FALSE(Make4("128.0.0.1", 1).is_loopback());
  EXPECT_FALSE(Make4("0.0.0.0", 1).is_loopback());
  EXPECT_FALSE(Make6("::", 1).is_loopback());
}

TEST(UniqueIdTest, AddressAndKeyComeBack) {
  for (const SocketAddress& address : {Make4("10.1.2.3", 4711), Make6("2001:db8::7", 22)}) {
    UniqueId id = {.address = address, .key = {}};
    id.key.bytes.fill(9);
    id.key.bytes.back() = 8;
    const auto decoded = DecodeUniqueId(EncodeUniqueId(id));
    ASSERT_TRUE(decoded.ok()) << decoded.status().text();
    EXPECT_EQ(decoded.value().address.Text(), address.Text());
    EXPECT_EQ(decoded.value().key.bytes, id.key.bytes);
  }
}

TEST(UniqueIdTest, FurtherAddressesComeBackWithThePort) {
  UniqueId id = {.address = Make4("10.1.2.3", 4711), .key = {}};
  for (int i = 1; i <= 20; ++i) {
    id.more_addresses.push_back(Make4(Format("10.2.0.{}", i).c_str(), 4711));
    const UniqueId decoded = DecodeUniqueId(EncodeUniqueId(id)).value();
    EXPECT_EQ(decoded.address.Text(), "10.1.2.3:4711");
    const size_t kept = std::min<size_t>(id.more_addresses.size(), kMostAddresses - 1);
    ASSERT_EQ(decoded.more_addresses.size(), kept);
    for (size_t k = 0; k < kept; ++k) {
      EXPECT_EQ(decoded.more_addresses[k].Text(), id.more_addresses[k].Text());
    }
  }
}

// Ranks with an earlier build have such ids, and understand no others.
TEST(UniqueIdTest, OneAddressLeavesTheRestEmpty) {
  const auto bytes = EncodeUniqueId({.address = Make4("10.1.2.3", 4711), .key = {}});
  EXPECT_TRUE(std::all_of(bytes.begin() + 48, bytes.end(), [](char byte) { return byte == 0; }));
}

TEST(UniqueIdTest, EveryAddressHasItsTurn) {
  const UniqueId id = {.address = Make4("10.0.0.1", 7),
                       .key = {},
                       .more_addresses = {Make4("10.0.0.2", 7), Make4("10.0.0.3", 7)}};
  std::string turns;
  for (size_t turn = 0; turn < 5; ++turn) {
    const UniqueId now = id.AtTurn(turn);
    EXPECT_EQ(now.more_addresses.size(), 2u);
    turns += now.address.HostText() + " ";
  }
  EXPECT_EQ(turns, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.1 10.0.0.2 ");
}

TEST(UniqueIdTest, MoreAddressesThanThereIsRoomForAreRefused) {
  auto bytes = EncodeUniqueId({.address = Make4("10.1.2.3", 4711), .key = {}});
  bytes[68] = kMostAddresses;
  EXPECT_EQ(DecodeUniqueId(bytes).status().code(), Code::kInvalidArgument);
  bytes = EncodeUniqueId({.address = Make6("2001:db8::7", 22), .key = {}});
  bytes[68] = 1;
  EXPECT_EQ(DecodeUniqueId(bytes).status().code(), Code::kInvalidArgument);
}

TEST(UniqueIdTest, WhatIsNoneIsRefused) {
  const auto good = EncodeUniqueId({.address = Make4("10.1.2.3", 4711), .key = {}});
  for (const size_t at : {0, 7, 40, 41}) {  // the magic word, and the family of the address
    auto bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    const auto decoded = DecodeUniqueId(bytes);
    ASSERT_FALSE(decoded.ok()) << at;
    EXPECT_EQ(decoded.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(decoded.status().text(), HasSubstr("pass all 128 bytes"));
  }
}

TEST(SocketTest, ErrorsNameTheAddressAndTheCause) {
  const auto listener = Listen(Make4("127.0.0.1", 0));
  ASSERT_TRUE(listener.ok()) << listener.status().text();
  const SocketAddress address = LocalAddress(listener.value()).value();
  const auto taken = Listen(address);
  EXPECT_EQ(taken.status().code(), Code::kSystemError);
  EXPECT_THAT(taken.status().text(),
              HasSubstr("cannot bind to " + address.Text() + ": Address already in use"));
  const auto foreign = Listen(Make4("192.0.2.1", 0));
  EXPECT_THAT(foreign.status().text(), HasSubstr("cannot bind to 192.0.2.1:0"));
}

TEST(SocketTest, WhoDoesNotAnswerIsATimeout) {
  const auto listener = Listen(Make4("127.0.0.1", 0));
  const auto client = Connect(LocalAddress(listener.value()).value(), In(milliseconds(2000)));
  ASSERT_TRUE(client.ok()) << client.status().text();
  char byte;
  EXPECT_EQ(ReceiveAll(client.value(), &byte, 1, In(milliseconds(50))).code(), Code::kTimeout);
  EXPECT_EQ(AwaitReadable(client.value(), In(milliseconds(-50))).code(), Code::kTimeout);
}

TEST(SocketTest, WhoClosesIsAnError) {
  const auto listener = Listen(Make4("127.0.0.1", 0));
  const auto client = Connect(LocalAddress(listener.value()).value(), In(milliseconds(2000)));
  ASSERT_TRUE(AwaitReadable(listener.value(), In(milliseconds(2000))).ok());
  { const Descriptor accepted(accept(listener.value().get(), nullptr, nullptr)); }
  char byte;
  const Status status = ReceiveAll(client.value(), &byte, 1, In(milliseconds(2000)));
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_EQ(status.text(), "the other side closed the connection");
}

TEST(HostLookupTest, NumericHostsHaveTheirPort) {
  // The deadline is over, but there is nobody to ask.
  const auto four = HostLookup("127.0.0.1", 80).Wait(In(milliseconds(-1)));
  ASSERT_TRUE(four.ok()) << four.status().text();
  EXPECT_EQ(four.value().front().Text(), "127.0.0.1:80");
  const auto six = HostLookup("::1", 80).Wait(In(milliseconds(-1)));
  ASSERT_TRUE(six.ok()) << six.status().text();
  EXPECT_EQ(six.value().front().Text(), "[::1]:80");
}

TEST(HostLookupTest, ErrorsNameTheHostAndTheNextCallAsksAgain) {
  const std::string too_long(300, 'x');  // for a name, so no name server is asked
  HostLookup lookup(too_long, 80);
  for (int i = 0; i < 2; ++i) {
    const auto none = lookup.Wait(In(minutes(1)));
    EXPECT_EQ(none.status().code(), Code::kSystemError);
    EXPECT_THAT(none.status().text(), HasSubstr("host \"" + too_long + "\" has no address"));
  }
}

TEST(HostLookupTest, ANameIsFoundAlsoByTheCallAfterATimeOut) {
  HostLookup lookup("localhost", 81);
  const auto early = lookup.Wait(In(milliseconds(-1)));
  EXPECT_TRUE(early.ok() || early.status().code() == Code::kTimeout) << early.status().text();
  const auto later = lookup.Wait(In(minutes(1)));
  ASSERT_TRUE(later.ok()) << later.status().text();
  EXPECT_TRUE(later.value().front().is_loopback());
  EXPECT_EQ(later.value().front().port(), 81);
}

}  // namespace
}  // namespace onebit
