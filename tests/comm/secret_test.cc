// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Proofs of knowing the key, and sealed frames that nobody can change, drop, repeat or reorder.
#include "comm/secret.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebit {
namespace {

JobKey KeyOf(unsigned char fill) {
  JobKey key;
  key.bytes.fill(fill);
  return key;
}

// Both sides of a handshake, each with a key of its own.
struct Handshake {
  ClientHello hello = MakeClientHello();
  ServerAnswer server;

  explicit Handshake(const JobKey& key) : server(AnswerHello(key, hello).value()) {}
};

TEST(ProofTest, SidesWithOneKeyAgree) {
  const Handshake handshake(KeyOf(1));
  const auto client = CheckServer(KeyOf(1), handshake.hello, handshake.server.hello);
  ASSERT_TRUE(client.ok()) << client.status().text();
  EXPECT_TRUE(IsSameProof(client.value().proof, handshake.server.expected_proof));
  EXPECT_EQ(client.value().keys.to_server.bytes, handshake.server.keys.to_server.bytes);
  EXPECT_EQ(client.value().keys.to_client.bytes, handshake.server.keys.to_client.bytes);
}

TEST(ProofTest, DirectionsHaveKeysOfTheirOwn) {
  const Handshake handshake(KeyOf(1));
  EXPECT_NE(handshake.server.keys.to_server.bytes, handshake.server.keys.to_client.bytes);
}

TEST(ProofTest, EveryConnectionHasOtherKeysAndProofs) {
  const ClientHello hello = MakeClientHello();
  const ServerAnswer first = AnswerHello(KeyOf(1), hello).value();
  const ServerAnswer second = AnswerHello(KeyOf(1), hello).value();
  EXPECT_NE(first.hello.nonce, second.hello.nonce);
  EXPECT_FALSE(IsSameProof(first.hello.proof, second.hello.proof));
  EXPECT_FALSE(IsSameProof(first.expected_proof, second.expected_proof));
  EXPECT_NE(first.keys.to_server.bytes, second.keys.to_server.bytes);
  EXPECT_NE(hello.nonce, MakeClientHello().nonce);
}

TEST(ProofTest, AServerWithAnotherKeyIsRefused) {
  const Handshake handshake(KeyOf(1));
  JobKey almost = KeyOf(1);
  almost.bytes.back() ^= 1;
  for (const JobKey& key : {KeyOf(2), almost}) {
    const auto client = CheckServer(key, handshake.hello, handshake.server.hello);
    ASSERT_FALSE(client.ok());
    EXPECT_EQ(client.status().code(), Code::kNotAuthenticated);
    EXPECT_THAT(client.status().text(),
                ::testing::HasSubstr("answers, but with another secret: ONEBIT_SECRET"));
  }
}

// Echoing the other side's proof proves nothing.
TEST(ProofTest, RolesCannotBeSwapped) {
  const Handshake handshake(KeyOf(1));
  EXPECT_FALSE(IsSameProof(handshake.server.hello.proof, handshake.server.expected_proof));
  ServerHello echo = handshake.server.hello;
  echo.proof = handshake.server.expected_proof;
  EXPECT_FALSE(CheckServer(KeyOf(1), handshake.hello, echo).ok());
}

TEST(ProofTest, AProofIsGoodForItsNoncesOnly) {
  const Handshake handshake(KeyOf(1));
  for (size_t bit = 0; bit < 8 * sizeof(Nonce); bit += 7) {
    ClientHello other_client = handshake.hello;
    other_client.nonce[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    EXPECT_FALSE(CheckServer(KeyOf(1), other_client, handshake.server.hello).ok()) << bit;
    ServerHello other_server = handshake.server.hello;
    other_server.nonce[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    EXPECT_FALSE(CheckServer(KeyOf(1), handshake.hello, other_server).ok()) << bit;
    ServerHello other_proof = handshake.server.hello;
    other_proof.proof[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    EXPECT_FALSE(CheckServer(KeyOf(1), handshake.hello, other_proof).ok()) << bit;
  }
}

TEST(ProofTest, AnotherVersionIsAMismatchAndAnotherProgramIsNot) {
  ClientHello hello = MakeClientHello();
  hello.magic.back() = '1';
  const auto other_version = AnswerHello(KeyOf(1), hello);
  ASSERT_FALSE(other_version.ok());
  EXPECT_EQ(other_version.status().code(), Code::kMismatch);
  EXPECT_NE(other_version.status().text().find("version '1' of the control protocol"),
            std::string::npos);

  std::memcpy(hello.magic.data(), "GET / HT", 8);
  EXPECT_EQ(AnswerHello(KeyOf(1), hello).status().code(), Code::kNotAuthenticated);

  const Handshake handshake(KeyOf(1));
  ServerHello answer = handshake.server.hello;
  std::memcpy(answer.magic.data(), "HTTP/1.1", 8);
  const auto client = CheckServer(KeyOf(1), handshake.hello, answer);
  EXPECT_EQ(client.status().code(), Code::kNotAuthenticated);
  EXPECT_EQ(client.status().text(), "what answers there is not a onebit rank");
}

TEST(KeyTest, SecretsAndKeysMix) {
  EXPECT_EQ(KeyOfSecret("a secret").bytes, KeyOfSecret("a secret").bytes);
  EXPECT_NE(KeyOfSecret("a secret").bytes, KeyOfSecret("a secres").bytes);
  EXPECT_EQ(KeyOfSecret("").bytes, KeyOfSecret("").bytes);
  EXPECT_EQ(MixedKey(KeyOf(1), "").bytes, KeyOf(1).bytes);
  EXPECT_NE(MixedKey(KeyOf(1), "x").bytes, KeyOf(1).bytes);
  EXPECT_NE(MixedKey(KeyOf(1), "x").bytes, MixedKey(KeyOf(2), "x").bytes);
  EXPECT_NE(MixedKey(KeyOf(1), "x").bytes, MixedKey(KeyOf(1), "y").bytes);
  EXPECT_NE(RandomKey().bytes, RandomKey().bytes);
}

constexpr size_t kMost = 100;
constexpr size_t kSealAndLength = 16 + 4;

Bytes Message(size_t size, unsigned char fill) { return Bytes(size, std::byte{fill}); }

// Frames as they are on the wire, one after the other.
std::vector<Bytes> Frames(const std::vector<Bytes>& messages) {
  FrameSealer sealer(KeyOf(7));
  std::vector<Bytes> frames;
  for (const Bytes& message : messages) {
    frames.emplace_back();
    sealer.Append(message, &frames.back());
  }
  return frames;
}

// Opened messages until there are no more; an error is appended as text.
std::vector<std::string> Opened(std::span<const Bytes> pieces, size_t most = kMost) {
  FrameOpener opener(KeyOf(7), most);
  std::vector<std::string> opened;
  for (const Bytes& piece : pieces) {
    opener.Feed(piece);
    while (true) {
      auto message = opener.Next();
      if (!message.ok()) {
        opened.push_back(message.status().text());
        return opened;
      }
      if (!message.value().has_value()) break;
      const Bytes& bytes = *message.value();
      opened.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return opened;
}

using Texts = std::vector<std::string>;

std::string BrokenSeal(int frame) {
  return "the seal of control frame " + std::to_string(frame) + " is broken";
}

TEST(FrameTest, MessagesComeOutInOrder) {
  const auto frames = Frames({Message(3, 'a'), Message(0, 'b'), Message(kMost, 'c')});
  EXPECT_EQ(Opened(frames), (Texts{"aaa", "", std::string(kMost, 'c')}));
  EXPECT_EQ(frames[1].size(), kSealAndLength);
}

TEST(FrameTest, BytesMayComeOneByOne) {
  std::vector<Bytes> pieces;
  for (const Bytes& frame : Frames({Message(3, 'a'), Message(40, 'b')})) {
    for (const std::byte byte : frame) pieces.push_back({byte});
  }
  EXPECT_EQ(Opened(pieces), (Texts{"aaa", std::string(40, 'b')}));
}

TEST(FrameTest, TheSameMessageNeverLooksTheSame) {
  const auto frames = Frames({Message(8, 'a'), Message(8, 'a')});
  EXPECT_NE(frames[0], frames[1]);
}

TEST(FrameTest, AChangedBitAnywhereIsFound) {
  const auto frames = Frames({Message(9, 'a')});
  for (size_t bit = 0; bit < 8 * frames[0].size(); ++bit) {
    Bytes damaged = frames[0];
    damaged[bit / 8] ^= std::byte{1} << bit % 8;
    // If a length was increased, the opener waits for the rest before it notices.
    const Bytes rest(kMost, std::byte{0});
    const auto opened = Opened(std::vector<Bytes>{damaged, rest});
    ASSERT_EQ(opened.size(), 1u) << bit;
    EXPECT_TRUE(opened[0] == BrokenSeal(0) || opened[0].starts_with("a control frame announces"))
        << bit << ": " << opened[0];
  }
}

TEST(FrameTest, AMissingFrameIsFound) {
  const auto frames = Frames({Message(3, 'a'), Message(3, 'b'), Message(3, 'c')});
  const std::vector<Bytes> shortened = {frames[0], frames[2]};
  EXPECT_EQ(Opened(shortened), (Texts{"aaa", BrokenSeal(1)}));
}

TEST(FrameTest, ARepeatedFrameIsFound) {
  const auto frames = Frames({Message(3, 'a'), Message(3, 'b')});
  const std::vector<Bytes> repeated = {frames[0], frames[0], frames[1]};
  EXPECT_EQ(Opened(repeated), (Texts{"aaa", BrokenSeal(1)}));
}

TEST(FrameTest, SwappedFramesAreFound) {
  auto frames = Frames({Message(3, 'a'), Message(3, 'b')});
  std::swap(frames[0], frames[1]);
  EXPECT_EQ(Opened(frames), (Texts{BrokenSeal(0)}));
}

TEST(FrameTest, FramesOfTheOtherDirectionAreRefused) {
  FrameSealer sealer(KeyOf(8));
  Bytes frame;
  sealer.Append(Message(3, 'a'), &frame);
  EXPECT_EQ(Opened(std::vector<Bytes>{frame}), (Texts{BrokenSeal(0)}));
}

TEST(FrameTest, PartOfAFrameIsNoMessage) {
  const Bytes frame = Frames({Message(9, 'a')})[0];
  for (size_t size = 0; size < frame.size(); ++size) {
    const Bytes part(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_TRUE(Opened(std::vector<Bytes>{part}).empty()) << size;
  }
}

TEST(FrameTest, LengthsOutOfBoundsAreRefusedBeforeMemoryIsTaken) {
  for (const uint32_t length :
       {0u, 1u, 15u, static_cast<uint32_t>(kMost) + 17, 0x7fff'ffffu, 0xffff'ffffu}) {
    const Bytes bytes = ByteWriter().Integer(length).Take();
    FrameOpener opener(KeyOf(7), kMost);
    opener.Feed(bytes);
    const auto message = opener.Next();
    ASSERT_FALSE(message.ok()) << length;
    EXPECT_EQ(message.status().code(), Code::kCorrupt);
    EXPECT_EQ(message.status().text(), "a control frame announces " + std::to_string(length) +
                                           " bytes, but may have 16 to 116");
  }
}

TEST(FrameTest, TheLargestMessageFitsAndOneByteMoreDoesNot) {
  const auto frames = Frames({Message(kMost + 1, 'a')});
  EXPECT_EQ(Opened(frames).at(0), "a control frame announces 117 bytes, but may have 16 to 116");
  EXPECT_EQ(Opened(frames, kMost + 1).at(0), std::string(kMost + 1, 'a'));
}

TEST(FrameTest, RandomPiecesOfManyFramesAreTakenApart) {
  std::mt19937 random(20);
  std::vector<Bytes> messages;
  Texts expected;
  for (int i = 0; i < 200; ++i) {
    messages.push_back(Message(random() % (kMost + 1), static_cast<unsigned char>('a' + i % 26)));
    expected.emplace_back(messages.back().size(), static_cast<char>('a' + i % 26));
  }
  Bytes stream;
  for (const Bytes& frame : Frames(messages)) {
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  std::vector<Bytes> pieces;
  for (size_t at = 0; at < stream.size();) {
    const size_t size = std::min<size_t>(1 + random() % 300, stream.size() - at);
    const auto begin = stream.begin() + static_cast<ptrdiff_t>(at);
    pieces.emplace_back(begin, begin + static_cast<ptrdiff_t>(size));
    at += size;
  }
  EXPECT_EQ(Opened(pieces), expected);
}

}  // namespace
}  // namespace onebit
