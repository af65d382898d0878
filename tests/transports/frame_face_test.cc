// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The frame face of transport `ucx`, called as the library does: two endpoints of one thread.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_figures.h"
#include "tests/transports/ucx_fixture.h"

namespace onebit::ucx {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

struct Frame {
  std::string header;
  std::string payload;
  bool operator==(const Frame&) const = default;
};

// Both ranks of a communicator, connected.
class FramePair : public ::testing::Test {
 protected:
  FramePair() {
    std::string addresses[2];
    const void* pointers[2];
    size_t sizes[2];
    for (int rank = 0; rank < 2; ++rank) {
      const onebitTransportCommInfo info{
          .structSize = sizeof info,
          .rank = rank,
          .nranks = 2,
          .commId = 5,
          .onFrame =
              [](void* frames, int, const void* header, size_t header_bytes, const void* payload,
                 size_t payload_bytes) {
                static_cast<std::vector<Frame>*>(frames)->push_back(
                    {{static_cast<const char*>(header), header_bytes},
                     {static_cast<const char*>(payload), payload_bytes}});
              },
          .onLoss = [](void*) {},
          .onEvent = [](void*) {},
          .argument = &arrived_[rank]};
      EXPECT_EQ(api_.open(started_.transport_context(), &info, &comms_[rank]), onebitSuccess);
      addresses[rank].resize(started_.properties().addressBytes);
      EXPECT_EQ(api_.getAddress(comms_[rank], addresses[rank].data(), &sizes[rank]), onebitSuccess);
      pointers[rank] = addresses[rank].data();
    }
    ExpectRefused(0);  // not connected yet
    for (void* comm : comms_) {
      EXPECT_EQ(api_.connect(comm, pointers, sizes, 1000), onebitSuccess);
      EXPECT_EQ(api_.connect(comm, pointers, sizes, 1000), onebitInvalidUsage);
    }
  }
  ~FramePair() override {
    for (void* comm : comms_) EXPECT_EQ(api_.close(comm), onebitSuccess);
  }

  // Every call that names the rank.
  void ExpectRefused(int peer) {
    const onebitTransportLink* link = nullptr;
    EXPECT_EQ(api_.getLink(comms_[0], peer, &link), onebitInvalidArgument) << peer;
    EXPECT_EQ(api_.sendFrame(comms_[0], peer, onebitFrameShort, "h", 1, nullptr, 0),
              onebitInvalidArgument)
        << peer;
  }
  void Progress() {
    for (void* comm : comms_) {
      int has_moved = 0;
      ASSERT_EQ(api_.progress(comm, &has_moved), onebitSuccess);
    }
  }
  void Send(int from, int to, onebitFrameKind kind, const Frame& frame) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (true) {
      const onebitResult_t result =
          api_.sendFrame(comms_[from], to, kind, frame.header.data(), frame.header.size(),
                         frame.payload.data(), frame.payload.size());
      if (result != onebitInProgress) {
        ASSERT_EQ(result, onebitSuccess);
        return;
      }
      Progress();
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }
  void AwaitFrames(int rank, size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (arrived_[rank].size() < count) {
      Progress();
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }

  const StartedTransport started_;
  const onebitTransport& api_ = started_.transport();
  void* comms_[2] = {};
  std::vector<Frame> arrived_[2];
};

TEST_F(FramePair, ARankThatDoesNotExistIsRefused) {
  for (const int peer : {-1, 2, 1 << 20}) ExpectRefused(peer);
}

TEST_F(FramePair, FramesArriveInOrderAndWhole) {
  std::vector<Frame> expected;
  const onebitTransportLink* link = nullptr;
  ASSERT_EQ(api_.getLink(comms_[0], 1, &link), onebitSuccess);
  const size_t sizes[] = {0, 1, started_.properties().eagerBytes};
  for (size_t i = 0; i < 300; ++i) {
    expected.push_back({std::string(1 + i % ONEBIT_TRANSPORT_FRAME_HEADER_BYTES, 'h'),
                        std::string(sizes[i % 3], static_cast<char>('a' + i % 26))});
    Send(0, 1, onebitFrameShort, expected.back());
  }
  AwaitFrames(1, expected.size());
  EXPECT_EQ(arrived_[1], expected);
  EXPECT_EQ(link->taken, link->sent);  // all have left
  EXPECT_EQ(link->loss, nullptr);
  EXPECT_STREQ(link->route, "shared memory");

  arrived_[1].clear();
  expected.clear();
  for (size_t i = 0; i < 50; ++i) {
    expected.push_back({"h" + std::to_string(i), std::string(link->pieceBytes - i, 'p')});
    Send(0, 1, onebitFrameLong, expected.back());
  }
  AwaitFrames(1, expected.size());
  EXPECT_EQ(arrived_[1], expected);
}

TEST_F(FramePair, ARankSendsToItself) {
  const Frame frame{"header", "payload"};
  Send(1, 1, onebitFrameShort, frame);
  AwaitFrames(1, 1);
  EXPECT_EQ(arrived_[1], std::vector<Frame>{frame});
}

// A sender without a receiver runs out of room, and memory is bounded.
TEST_F(FramePair, RoomIsBoundedAndReturns) {
  const Frame frame{"h", std::string(1000, 'x')};
  size_t sent = 0;
  onebitResult_t result = onebitSuccess;
  while (result == onebitSuccess && sent < 1'000'000) {
    result = api_.sendFrame(comms_[0], 1, onebitFrameShort, frame.header.data(), 1,
                            frame.payload.data(), frame.payload.size());
    if (result == onebitSuccess) ++sent;
  }
  EXPECT_EQ(result, onebitInProgress);
  AwaitFrames(1, sent);
  EXPECT_EQ(api_.sendFrame(comms_[0], 1, onebitFrameShort, frame.header.data(), 1,
                           frame.payload.data(), frame.payload.size()),
            onebitSuccess);
  AwaitFrames(1, sent + 1);
}

// An abort ends the sleep that is going on and all later ones, and frames can still be sent.
TEST_F(FramePair, AnAbortEndsEverySleep) {
  constexpr uint64_t kLongNs = 1'000'000'000ull * 600;
  std::jthread other([this] {
    EXPECT_TRUE(onebit::testing::AwaitOtherThreadsAsleep());
    EXPECT_EQ(api_.abort(comms_[0]), onebitSuccess);
  });
  int has_moved = 1;
  while (has_moved != 0) ASSERT_EQ(api_.progress(comms_[0], &has_moved), onebitSuccess);
  ASSERT_EQ(api_.sleep(comms_[0], kLongNs), onebitSuccess);
  other.join();
  ASSERT_EQ(api_.sleep(comms_[0], kLongNs), onebitSuccess);
  EXPECT_EQ(api_.abort(comms_[0]), onebitSuccess);
  const Frame frame{"farewell", ""};
  Send(0, 1, onebitFrameShort, frame);
  AwaitFrames(1, 1);
  EXPECT_EQ(arrived_[1], std::vector<Frame>{frame});
}

}  // namespace
}  // namespace onebit::ucx
