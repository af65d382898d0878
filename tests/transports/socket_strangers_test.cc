// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Strangers at the ports of transport `socket`: ranks find each other all the same, and nobody else
// gets in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "channel/message_channel.h"
#include "comm/socket.h"
#include "plugins/transport_socket/rank_address.h"
#include "plugins/transport_socket/socket_transport.h"
#include "tests/support/bytes_of.h"
#include "tests/support/transport_host.h"

namespace onebit::sockets {
namespace {

using ::testing::HasSubstr;

using Key = std::array<unsigned char, ONEBIT_TRANSPORT_KEY_BYTES>;

Key KeyOf(unsigned char fill) {
  Key key;
  key.fill(fill);
  return key;
}

// One rank's channel; not connected at first.
class Rank {
 public:
  Rank(const testing::StartedTransport& started, int rank, int nranks, const Key& key) {
    const channel::ChannelInfo info{
        .rank = rank, .nranks = nranks, .comm_id = 3, .key = key.data()};
    EXPECT_EQ(started.channels().Open(info, &channel_), onebitSuccess);
    address_.resize(started.properties().addressBytes);
    size_t bytes = 0;
    EXPECT_EQ(channel_->GetAddress(address_.data(), &bytes), onebitSuccess);
    EXPECT_EQ(ReadAddress(address_.data(), bytes, &read_), nullptr);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const Address& address() const { return read_; }
  onebitResult_t Connect(const std::vector<const Rank*>& all, uint64_t timeout_ms) {
    std::vector<std::vector<std::byte>> addresses;
    for (const Rank* one : all) {
      addresses.push_back(testing::CopyOf(testing::BytesOf(one->address_)));
    }
    return channel_->Connect(addresses, timeout_ms);
  }

 private:
  std::unique_ptr<channel::MessageChannel> channel_;
  std::string address_;
  Address read_{};
};

Descriptor ConnectTcp(const Address& address) {
  const SocketAddress to = SocketAddressOf(address);
  Descriptor socket(::socket(static_cast<int>(address.family), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(socket.get(), to.get(), to.size()) == 0 ? std::move(socket) : Descriptor();
}

Descriptor ConnectLocal(const Address& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.local.data(), address.local.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.local.size());
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), bytes) == 0
             ? std::move(socket)
             : Descriptor();
}

void Say(const Descriptor& socket, const std::string& words) {
  [[maybe_unused]] const ssize_t sent =
      send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

struct Attack {
  const char* name;
  std::function<std::vector<Descriptor>(const Address&)> begin;
};

void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

std::vector<Descriptor> Many(int count, const std::function<Descriptor(int)>& make) {
  std::vector<Descriptor> sockets;
  for (int i = 0; i < count; ++i) sockets.push_back(make(i));
  return sockets;
}

std::string Garbage(int seed, size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

const Attack kAttacks[] = {
    {"Silence", [](const Address& to) { return Many(20, [&](int) { return ConnectTcp(to); }); }},
    {"SilenceOverTheLocalSocket",
     [](const Address& to) { return Many(20, [&](int) { return ConnectLocal(to); }); }},
    {"Garbage",
     [](const Address& to) {
       return Many(50, [&](int i) {
         Descriptor socket = i % 2 == 0 ? ConnectTcp(to) : ConnectLocal(to);
         Say(socket, Garbage(i, 4096));
         return socket;
       });
     }},
    {"HalfAHello",
     [](const Address& to) {
       return Many(20, [&](int i) {
         Descriptor socket = ConnectTcp(to);
         Say(socket, std::string("onebitc3", 8) + Garbage(i, 11));
         return socket;
       });
     }},
    {"ScansThatCloseAtOnce",
     [](const Address& to) {
       for (int i = 0; i < 500; ++i) ConnectTcp(to);
       return std::vector<Descriptor>();
     }},
};

class SocketStrangersTest : public ::testing::TestWithParam<Attack> {};

TEST_P(SocketStrangersTest, RanksConnectAllTheSame) {
  for (const char* const shares_memory : {"1", "0"}) {
    const testing::StartedTransport started(*Functions(),
                                            {{"ONEBIT_SOCKET_SHARED_MEMORY", shares_memory}});
    Rank first(started, 0, 2, KeyOf(1));
    Rank second(started, 1, 2, KeyOf(1));
    const auto strangers = GetParam().begin(first.address());
    onebitResult_t result = onebitInternalError;
    std::jthread other([&] { result = second.Connect({&first, &second}, 30'000); });
    EXPECT_EQ(first.Connect({&first, &second}, 30'000), onebitSuccess) << started.warnings();
    other.join();
    EXPECT_EQ(result, onebitSuccess) << started.warnings();
    // Nobody listens any more.
    EXPECT_FALSE(ConnectTcp(first.address()).is_open());
    EXPECT_FALSE(ConnectLocal(first.address()).is_open());
  }
}

INSTANTIATE_TEST_SUITE_P(Attacks, SocketStrangersTest, ::testing::ValuesIn(kAttacks),
                         [](const auto& info) { return std::string(info.param.name); });

// Returns what two ranks with different keys say that try to connect for so long.
std::string WarningsOfDifferentKeys(const char* shares_memory, uint64_t timeout_ms) {
  const testing::StartedTransport started(*Functions(),
                                          {{"ONEBIT_SOCKET_SHARED_MEMORY", shares_memory}});
  Rank first(started, 0, 2, KeyOf(1));
  Rank second(started, 1, 2, KeyOf(2));
  std::jthread other([&] {
    EXPECT_EQ(second.Connect({&first, &second}, timeout_ms), onebitTimeout);
  });
  EXPECT_EQ(first.Connect({&first, &second}, timeout_ms), onebitTimeout);
  other.join();
  return started.warnings();
}

TEST(SocketKeyTest, ARankWithAnotherKeyIsNotConnected) {
  for (const char* const shares_memory : {"1", "0"}) {
    // On a busy machine the ranks may miss each other, and then have more time.
    std::string warnings;
    for (uint64_t timeout_ms = 500;
         timeout_ms < 30'000 && warnings.find("with another secret") == std::string::npos;
         timeout_ms *= 2) {
      warnings = WarningsOfDifferentKeys(shares_memory, timeout_ms);
      EXPECT_THAT(warnings, HasSubstr("not connected in time with rank 0"));
    }
    EXPECT_THAT(warnings, HasSubstr("with another secret"));
  }
}

TEST(SocketAddressTest, AnAddressOfAnotherRankIsRefused) {
  const testing::StartedTransport started(*Functions());
  Rank ranks[] = {{started, 0, 3, KeyOf(1)}, {started, 1, 3, KeyOf(1)}, {started, 2, 3, KeyOf(1)}};

  EXPECT_EQ(ranks[2].Connect({&ranks[1], &ranks[0], &ranks[2]}, 500), onebitInvalidArgument);
}

}  // namespace
}  // namespace onebit::sockets
