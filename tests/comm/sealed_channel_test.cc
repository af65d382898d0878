// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sealed messages over sockets that are full, empty, slow or closed.
#include "comm/sealed_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

constexpr size_t kMost = 8192;

JobKey KeyOf(unsigned char fill) {
  JobKey key;
  key.bytes.fill(fill);
  return key;
}

// The next message of a sequence without repetition.
Bytes MessageOf(size_t number, size_t bytes = 1000) {
  Bytes message(bytes + number % 7);
  for (size_t i = 0; i < message.size(); ++i) {
    message[i] = static_cast<std::byte>(number * 131 + i * 7 + number / 256);
  }
  return message;
}

// Two ends of a connection whose sockets have little room.
struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    const int room = 4096;
    for (const int fd : fds) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    first = std::make_unique<SealedChannel>(Descriptor(fds[0]), KeyOf(1), KeyOf(2), kMost);
    second = std::make_unique<SealedChannel>(Descriptor(fds[1]), KeyOf(2), KeyOf(1), kMost);
  }
  std::unique_ptr<SealedChannel> first, second;
};

// Appends received messages to `received`.
Status ReceiveInto(SealedChannel& channel, std::vector<Bytes>* received) {
  return channel.Receive([&](const Bytes& message) {
    received->push_back(message);
    return OkStatus();
  });
}

TEST(SealedChannelTest, NothingIsLostWhereTheSocketIsFull) {
  constexpr size_t kMessages = 500;
  Ends ends;
  std::vector<Bytes> expected, received;
  for (size_t i = 0; i < kMessages; ++i) {
    expected.push_back(MessageOf(i, i % 50 == 0 ? kMost - 7 : 1000));
    ASSERT_TRUE(ends.first->Send(expected.back()).ok());
  }
  ASSERT_TRUE(ends.first->has_unsent());  // otherwise the socket was not full
  int rounds = 0;
  for (; ends.first->has_unsent(); ++rounds) {
    ASSERT_LT(rounds, 10'000);
    ASSERT_TRUE(ReceiveInto(*ends.second, &received).ok());
    ASSERT_TRUE(ends.first->Flush().ok());
  }
  EXPECT_GT(rounds, 10);
  ASSERT_TRUE(ReceiveInto(*ends.second, &received).ok());
  EXPECT_EQ(received, expected);
  // Sent bytes are not sent again, and the queue takes the next message.
  expected.push_back(MessageOf(kMessages));
  ASSERT_TRUE(ends.first->Flush().ok());
  ASSERT_TRUE(ends.first->Send(expected.back()).ok());
  EXPECT_FALSE(ends.first->has_unsent());
  ASSERT_TRUE(ReceiveInto(*ends.second, &received).ok());
  EXPECT_EQ(received, expected);
}

TEST(SealedChannelTest, ThePeerThatNeverReadsIsLost) {
  Ends ends;
  ASSERT_TRUE(ends.second->Send(MessageOf(7)).ok());
  const Bytes message = MessageOf(0);
  size_t taken = 0;
  Status status;
  for (; status.ok() && taken < 2000; ++taken) status = ends.first->Send(message);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.text().find("does not read its control connection"), status.text().npos);
  EXPECT_GT(taken * message.size(), 1'000'000u);
  EXPECT_EQ(ends.first->Send(message).text(), status.text());  // the queue grows no more
  // Its owner learns the reason where it reads, after what had arrived, and the peer that it ended.
  std::vector<Bytes> at_first, at_second;
  EXPECT_EQ(ReceiveInto(*ends.first, &at_first).text(), status.text());
  EXPECT_EQ(at_first, (std::vector<Bytes>{MessageOf(7)}));
  EXPECT_EQ(ReceiveInto(*ends.second, &at_second).code(), Code::kPeerLost);
  EXPECT_FALSE(at_second.empty());
}

// A large message may wait, and with it what belongs to ordinary traffic.
TEST(SealedChannelTest, OneMessageOfAnySizeMayWait) {
  Ends ends;
  ASSERT_TRUE(ends.first->Send(Bytes(16u << 20)).ok());
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(ends.first->Send(MessageOf(0)).ok());
}

TEST(SealedChannelTest, BothWaysHaveKeysAndNumbersOfTheirOwn) {
  Ends ends;
  std::vector<Bytes> at_first, at_second;
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(ends.first->Send(MessageOf(i)).ok());
  ASSERT_TRUE(ends.second->Send(MessageOf(7)).ok());
  ASSERT_TRUE(ReceiveInto(*ends.first, &at_first).ok());
  ASSERT_TRUE(ReceiveInto(*ends.second, &at_second).ok());
  EXPECT_EQ(at_first, (std::vector<Bytes>{MessageOf(7)}));
  EXPECT_EQ(at_second, (std::vector<Bytes>{MessageOf(0), MessageOf(1), MessageOf(2)}));
}

TEST(SealedChannelTest, NothingThereIsNoError) {
  Ends ends;
  std::vector<Bytes> received;
  EXPECT_TRUE(ReceiveInto(*ends.second, &received).ok());
  EXPECT_TRUE(received.empty());
  EXPECT_FALSE(ends.first->has_unsent());
}

TEST(SealedChannelTest, TheLastWordsBeforeTheEndCount) {
  Ends ends;
  ASSERT_TRUE(ends.first->Send(MessageOf(1)).ok());
  ends.first.reset();
  std::vector<Bytes> received;
  const Status status = ReceiveInto(*ends.second, &received);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(received, (std::vector<Bytes>{MessageOf(1)}));
  EXPECT_EQ(ends.second->Send(MessageOf(2)).code(), Code::kPeerLost);
}

TEST(SealedChannelTest, AnErrorOfTheReceiverEndsIt) {
  Ends ends;
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(ends.first->Send(MessageOf(i)).ok());
  int taken = 0;
  const Status status = ends.second->Receive(
      [&](const Bytes&) { return ++taken == 2 ? Error(Code::kCorrupt, "enough") : OkStatus(); });
  EXPECT_EQ(status.text(), "enough");
  EXPECT_EQ(taken, 2);
}

// A connection that sends all the time must not keep the thread from the others.
TEST(SealedChannelTest, ABusySenderGetsATurnOnly) {
  Ends ends;
  ASSERT_TRUE(ends.first->Send(MessageOf(0)).ok());
  size_t taken = 0;
  ASSERT_TRUE(ends.second
                  ->Receive([&](const Bytes&) {
                    if (++taken > 1000) return Error(Code::kTimeout, "it never ends");
                    return ends.first->Send(MessageOf(taken));
                  })
                  .ok());
  EXPECT_LE(taken, 100u);
}

TEST(SealedChannelTest, AMessageBeyondTheLimitOfTheReceiverIsRefused) {
  Ends ends;
  std::vector<Bytes> received;
  ASSERT_TRUE(ends.first->Send(Bytes(kMost)).ok());
  ASSERT_TRUE(ends.first->Send(Bytes(kMost + 1)).ok());
  Status status;
  for (int rounds = 0; rounds < 100 && status.ok(); ++rounds) {
    status = ReceiveInto(*ends.second, &received);
    ASSERT_TRUE(ends.first->Flush().ok());
  }
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(received, (std::vector<Bytes>{Bytes(kMost)}));
}

// Two frames with one nonce give away the difference of their messages, and the key that forges
// others.
TEST(FrameSealerTest, NoNonceComesAgain) {
  constexpr size_t kFrames = 70'000;  // more than a number of 16 bits tells apart
  const Bytes message(8);
  FrameSealer sealer(KeyOf(3));
  std::vector<Bytes> frames(kFrames);
  for (Bytes& frame : frames) sealer.Append(message, &frame);
  std::sort(frames.begin(), frames.end());
  EXPECT_EQ(std::adjacent_find(frames.begin(), frames.end()), frames.end());
}

}  // namespace
}  // namespace onebit
