// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Frames over a connection, as they are and encrypted, and what becomes of bytes that were changed.
#include "plugins/transport_socket/tcp_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace onebit::sockets {
namespace {

using std::string_literals::operator""s;

constexpr size_t kMostShortBytes = 1000;

JobKey KeyOf(unsigned char fill) {
  JobKey key;
  key.bytes.fill(fill);
  return key;
}

// Arrivals holds what one end receives.
struct Arrivals {
  std::vector<std::pair<std::string, std::string>> frames;
  std::string placed;  // memory of the user, for payloads of its size

  onebitTransportCommInfo Info() {
    return {.structSize = sizeof(onebitTransportCommInfo),
            .placeFrame = [](void* self, int, const void*, size_t, size_t bytes) -> void* {
              auto& placed = static_cast<Arrivals*>(self)->placed;
              return bytes != 0 && bytes == placed.size() ? placed.data() : nullptr;
            },
            .onFrame =
                [](void* self, int, const void* header, size_t header_bytes, const void* payload,
                   size_t payload_bytes) {
                  static_cast<Arrivals*>(self)->frames.emplace_back(
                      std::string(static_cast<const char*>(header), header_bytes),
                      std::string(static_cast<const char*>(payload), payload_bytes));
                },
            .argument = this};
  }
};

// Two ends of a connection, and a third party that sees all and may change it.
class TcpPair : public ::testing::TestWithParam<uint32_t> {
 protected:
  TcpPair() { Start(); }

  void Start() {
    int near[2];
    int far[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, near), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, far), 0);
    arrivals_ = {};
    sending_ = std::make_unique<plugin::Link>();
    receiving_ = std::make_unique<plugin::Link>();
    from_ = std::make_unique<TcpLink>(Descriptor(near[0]), sending_.get(), kMostShortBytes,
                                      CipherOf(1, 2));
    to_ = std::make_unique<TcpLink>(Descriptor(far[0]), receiving_.get(), kMostShortBytes,
                                    CipherOf(2, 1));
    outgoing_ = Descriptor(near[1]);
    incoming_ = Descriptor(far[1]);
  }

  static std::unique_ptr<FrameCipher> CipherOf(unsigned char sending, unsigned char receiving) {
    if (GetParam() == 0) return nullptr;
    return std::make_unique<FrameCipher>(static_cast<Cipher>(GetParam()), KeyOf(sending),
                                         KeyOf(receiving));
  }

  plugin::Sent Send(onebitFrameKind kind, const std::string& header, const std::string& payload) {
    return from_->Send(kind, std::as_bytes(std::span(header)), std::as_bytes(std::span(payload)));
  }
  // TakeBytes returns what was sent, and Deliver gives bytes to the receiver.
  std::string TakeBytes() const {
    std::string bytes(1 << 20, '\0');
    const ssize_t got = recv(outgoing_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  void Deliver(const std::string& bytes) {
    ASSERT_EQ(send(incoming_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    const onebitTransportCommInfo info = arrivals_.Info();
    const plugin::FrameSink sink(info);
    while (to_->Receive(1, sink)) {
    }
  }

  Arrivals arrivals_;
  std::unique_ptr<plugin::Link> sending_;
  std::unique_ptr<plugin::Link> receiving_;
  std::unique_ptr<TcpLink> from_;
  std::unique_ptr<TcpLink> to_;
  Descriptor outgoing_;
  Descriptor incoming_;
};

// Every cipher of this machine, and none (0).
std::vector<uint32_t> Ciphers() {
  std::vector<uint32_t> all = {0};
  for (const Cipher one : {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305}) {
    if ((CiphersHere() & static_cast<uint32_t>(one)) != 0) {
      all.push_back(static_cast<uint32_t>(one));
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ciphers, TcpPair, ::testing::ValuesIn(Ciphers()),
                         [](const auto& info) { return "Cipher" + std::to_string(info.param); });

TEST_P(TcpPair, FramesArriveWholeHoweverTheyAreCut) {
  for (const size_t piece : {1u, 7u, 100u, 5000u}) {
    Start();
    ASSERT_EQ(Send(onebitFrameShort, "one", ""), plugin::Sent::kYes);
    ASSERT_EQ(Send(onebitFrameShort, "two", std::string(kMostShortBytes, 'a')), plugin::Sent::kYes);
    ASSERT_EQ(Send(onebitFrameLong, "three", std::string(3000, 'b')), plugin::Sent::kYes);
    arrivals_.placed.assign(3000, ' ');
    const std::string bytes = TakeBytes();
    for (size_t at = 0; at < bytes.size(); at += piece) Deliver(bytes.substr(at, piece));
    ASSERT_EQ(arrivals_.frames.size(), 3u);
    EXPECT_EQ(arrivals_.frames[0], std::pair("one"s, ""s));
    EXPECT_EQ(arrivals_.frames[1], std::pair("two"s, std::string(kMostShortBytes, 'a')));
    EXPECT_EQ(arrivals_.frames[2], std::pair("three"s, std::string(3000, 'b')));
    EXPECT_EQ(arrivals_.placed, std::string(3000, 'b'));
    EXPECT_FALSE(receiving_->is_lost());
  }
}

TEST_P(TcpPair, MemoryThatIsTakenBackInTheMiddleIsNotWritten) {
  ASSERT_EQ(Send(onebitFrameLong, "header", std::string(3000, 'b')), plugin::Sent::kYes);
  arrivals_.placed.assign(3000, ' ');
  const std::string bytes = TakeBytes();
  Deliver(bytes.substr(0, 1500));
  to_->StopPlacing();
  arrivals_.placed.assign(3000, 'm');
  Deliver(bytes.substr(1500));
  EXPECT_EQ(arrivals_.placed, std::string(3000, 'm'));
  ASSERT_EQ(arrivals_.frames.size(), 1u);
  EXPECT_EQ(arrivals_.frames[0].second, std::string(3000, 'b'));
}

// The peer has sent its last frames and closed; this end finds the latter first.
TEST_P(TcpPair, ASendThatFailsLosesNothingThatHadArrived) {
  ASSERT_EQ(Send(onebitFrameShort, "last", "words"), plugin::Sent::kYes);
  const std::string bytes = TakeBytes();
  ASSERT_EQ(send(incoming_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  incoming_ = Descriptor();
  const std::string answer = "h";
  EXPECT_EQ(to_->Send(onebitFrameShort, std::as_bytes(std::span(answer)), {}),
            plugin::Sent::kNoRoom);
  EXPECT_TRUE(to_->is_broken());
  EXPECT_FALSE(receiving_->is_lost());
  const onebitTransportCommInfo info = arrivals_.Info();
  const plugin::FrameSink sink(info);
  while (to_->Receive(1, sink)) {
  }
  ASSERT_EQ(arrivals_.frames.size(), 1u);
  EXPECT_EQ(arrivals_.frames[0], std::pair("last"s, "words"s));
  EXPECT_TRUE(receiving_->is_lost());
}

TEST_P(TcpPair, NothingThatWasChangedIsDelivered) {
  if (GetParam() == 0) GTEST_SKIP() << "without a cipher only the key's proof protects";
  ASSERT_EQ(Send(onebitFrameShort, "header", "a payload"), plugin::Sent::kYes);
  const size_t count = TakeBytes().size();
  for (size_t at = 0; at < count; ++at) {
    for (const int bit : {0, 7}) {
      Start();
      ASSERT_EQ(Send(onebitFrameShort, "header", "a payload"), plugin::Sent::kYes);
      std::string bytes = TakeBytes();
      ASSERT_EQ(bytes.size(), count);
      EXPECT_EQ(bytes.find("payload"), std::string::npos) << "it is not encrypted";
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      // More bytes, if a size has become larger.
      Deliver(bytes + std::string(2000, 'x'));
      EXPECT_TRUE(arrivals_.frames.empty()) << "byte " << at;
    }
  }
}

TEST_P(TcpPair, FramesCannotBeRepeatedOrLeftOut) {
  if (GetParam() == 0) GTEST_SKIP() << "without a cipher only the key's proof protects";
  ASSERT_EQ(Send(onebitFrameShort, "one", "1"), plugin::Sent::kYes);
  const std::string one = TakeBytes();
  ASSERT_EQ(Send(onebitFrameShort, "two", "2"), plugin::Sent::kYes);
  const std::string two = TakeBytes();
  Deliver(one + one);
  EXPECT_EQ(arrivals_.frames.size(), 1u);
  EXPECT_TRUE(receiving_->is_lost());
  EXPECT_STREQ(receiving_->loss, "a frame was changed in transit, or was sealed with another key");
  Start();
  Deliver(two);
  EXPECT_TRUE(arrivals_.frames.empty());
  EXPECT_TRUE(receiving_->is_lost());
}

TEST_P(TcpPair, WhatTheSocketDoesNotTakeIsQueuedAndBounded) {
  const std::string piece(TcpLink::kPieceBytes, 'p');
  size_t sent = 0;
  while (Send(onebitFrameLong, std::to_string(sent), piece) == plugin::Sent::kYes) ++sent;
  size_t short_ones = 0;
  while (Send(onebitFrameShort, "s", "") == plugin::Sent::kYes) ++short_ones;
  EXPECT_GT(short_ones, 10u) << "short frames have room of their own";
  EXPECT_GT(sending_->in_flight(), 0u);
  for (int i = 0; i < 100'000 && arrivals_.frames.size() < sent + short_ones; ++i) {
    Deliver(TakeBytes());
    from_->Flush();
  }
  ASSERT_EQ(arrivals_.frames.size(), sent + short_ones);
  EXPECT_EQ(sending_->in_flight(), 0u);
  for (size_t i = 0; i < sent; ++i) {
    EXPECT_EQ(arrivals_.frames[i].first, std::to_string(i));
    EXPECT_EQ(arrivals_.frames[i].second, piece);
  }
}

TEST(FrameCipherTest, TheFirstCipherOfBothIsTaken) {
  const auto chacha = static_cast<uint32_t>(Cipher::kChaCha20Poly1305);
  const auto both = chacha | static_cast<uint32_t>(Cipher::kAes256Gcm);
  EXPECT_EQ(AgreedCipher(both, both), Cipher::kAes256Gcm);
  EXPECT_EQ(AgreedCipher(both, chacha), Cipher::kChaCha20Poly1305);
  EXPECT_EQ(AgreedCipher(chacha, both), Cipher::kChaCha20Poly1305);
}

}  // namespace
}  // namespace onebit::sockets
