// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An endpoint survives frames that no honest peer sends: each check of arriving frames, and what it
// protects.
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scripted_frames.h"
#include "wait/spin_lock.h"

namespace onebit::testing {
namespace {

using channel::kWindow;
using channel::Request;
using channel::WireHeader;
using channel::WireType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kEager = FramedRank::kEagerBytes;
constexpr size_t kEarly = FramedRank::kEarlyBytes;
constexpr size_t kPiece = FramedRank::kPieceBytes;
constexpr size_t kLarge = 2000;  // sent only when asked for
constexpr std::byte kUntouched{0xee};

std::vector<std::byte> Filled(size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

WireHeader Message(uint64_t number, uint64_t payload_bytes) {
  return FramedRank::Wire(WireType::kMessage, number, payload_bytes);
}

WireHeader Data(uint64_t number, uint64_t begin) {
  return FramedRank::Wire(WireType::kData, number, begin);
}

WireHeader Of(WireType type, uint64_t number, uint64_t value = 0) {
  return FramedRank::Wire(type, number, value);
}

// A receive of rank 0, with guard bytes around its memory.
class Receiving {
 public:
  explicit Receiving(FramedRank& rank) : rank_(rank) {
    EXPECT_EQ(rank.channel().Receive(1, header_, &request_), onebitSuccess);
  }
  // Accepts the payload of a message whose header has arrived.
  void Accept(size_t bytes) {
    memory_.assign(bytes + 2 * kPiece, kUntouched);
    EXPECT_EQ(rank_.channel().Accept(request_, std::span(memory_).subspan(kPiece, bytes)),
              onebitSuccess);
  }
  // The state, or the negated error.
  int Test() {
    TransferState state = TransferState::kPending;
    const onebitResult_t result = rank_.channel().Test(request_, &state);
    return result == onebitSuccess ? static_cast<int>(state) : -static_cast<int>(result);
  }
  void Cancel() { EXPECT_EQ(rank_.channel().Cancel(request_), onebitSuccess); }
  std::vector<std::byte> payload() const {
    return {memory_.begin() + kPiece, memory_.end() - kPiece};
  }
  bool is_untouched() const {
    return std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == kUntouched; });
  }
  bool is_untouched_around() const {
    const auto is_guard = [](std::byte b) { return b == kUntouched; };
    return std::all_of(memory_.begin(), memory_.begin() + kPiece, is_guard) &&
           std::all_of(memory_.end() - kPiece, memory_.end(), is_guard);
  }
  const std::vector<std::byte>& header() const { return header_; }

 private:
  FramedRank& rank_;
  std::vector<std::byte> header_ = Filled(kMessageHeaderBytes, 0);
  std::vector<std::byte> memory_;
  Request* request_ = nullptr;
};

constexpr int kPending = static_cast<int>(TransferState::kPending);
constexpr int kHeader = static_cast<int>(TransferState::kHeader);
constexpr int kDone = static_cast<int>(TransferState::kDone);

// Receives the next message, all of which has arrived.
std::vector<std::byte> ReceiveNow(FramedRank& rank, size_t bytes) {
  Receiving receiving(rank);
  EXPECT_EQ(receiving.Test(), kHeader);
  receiving.Accept(bytes);
  EXPECT_EQ(receiving.Test(), kDone);
  EXPECT_TRUE(receiving.is_untouched_around());
  return receiving.payload();
}

struct BadFrame {
  const char* problem;
  std::function<void(WireHeader*)> damage;
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
};

TEST(FramesTest, AFrameThatIsWrongInOneFieldIsDropped) {
  const BadFrame cases[] = {
      {"from another transport", [](WireHeader* wire) { ++wire->magic; }},
      {"another communicator", [](WireHeader* wire) { wire->comm_id |= uint64_t{1} << 40; }},
      {"no such rank", [](WireHeader* wire) { wire->source = FramedRank::kRanks; }},
      {"no such rank", [](WireHeader* wire) { wire->source = UINT32_MAX; }},
      {"header has a wrong length", [](WireHeader* wire) { wire->header_bytes = 1; }},
      {"header has a wrong length", [](WireHeader*) {}, 1},
      {"header has a wrong length", [](WireHeader* wire) { wire->header_bytes = 65; }, 65},
      {"releases what was not sent", [](WireHeader* wire) { wire->released = 1; }},
      {"type is unknown", [](WireHeader* wire) { wire->type = WireType{0}; }},
      {"type is unknown", [](WireHeader* wire) { wire->type = WireType{9}; }},
      {"out of order", [](WireHeader* wire) { wire->number = kWindow; }},
      {"out of order", [](WireHeader* wire) { wire->number = UINT64_MAX; }},
      {"payload has a wrong length", [](WireHeader* wire) { wire->value = kEager; }, 0, kEager - 1},
      {"payload has a wrong length", [](WireHeader* wire) { wire->value = kEager; }, 0, kEager + 1},
      {"payload has a wrong length", [](WireHeader* wire) { wire->value = 100; }, 0, 101},
      {"payload has a wrong length", [](WireHeader* wire) { wire->value = kEarly + 1; }, 0, 1},
      {"payload has a wrong length", [](WireHeader*) {}, 0, 1},
  };
  for (const BadFrame& bad : cases) {
    SCOPED_TRACE(bad.problem);
    FramedRank rank;
    Receiving receiving(rank);
    WireHeader wire = Message(0, 0);
    bad.damage(&wire);
    rank.Arrive(wire, Filled(bad.payload_bytes, 1), Filled(bad.header_bytes, 2));
    EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr(bad.problem)));
    EXPECT_EQ(receiving.Test(), kPending);
    rank.Arrive(Message(0, 0));  // the wrong one has not taken its slot
    EXPECT_EQ(receiving.Test(), kHeader);
    EXPECT_EQ(FramedRank::warnings().size(), 1u);
    receiving.Cancel();
  }
}

// Otherwise a rank could end a receive from another, and write its memory afterwards.
TEST(FramesTest, ARankSpeaksForItselfAlone) {
  FramedRank rank;
  Receiving receiving(rank);
  rank.Arrive(Message(0, kLarge));
  ASSERT_EQ(receiving.Test(), kHeader);
  receiving.Accept(kLarge);
  const WireHeader wire = Data(0, 0);
  EXPECT_EQ(rank.frames().Place(2, wire, kPiece), nullptr);
  EXPECT_NE(rank.frames().Place(1, wire, kPiece), nullptr);
  EXPECT_NE(rank.frames().Place(-1, wire, kPiece), nullptr) << "the transport cannot tell";
  const auto bytes = std::as_bytes(std::span(&wire, 1));
  rank.frames().Arrive({{bytes.begin(), bytes.end()}, Filled(kPiece, 3), 2});
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("another rank has sent it")));
  EXPECT_TRUE(receiving.is_untouched());
  receiving.Cancel();
}

TEST(FramesTest, AFrameShorterThanItsHeaderIsDropped) {
  const WireHeader wire = Message(0, 0);
  const auto bytes = std::as_bytes(std::span(&wire, 1));
  for (const size_t cut : {sizeof wire, size_t{1}}) {
    FramedRank rank;
    rank.frames().Arrive({{bytes.begin(), bytes.end() - static_cast<ptrdiff_t>(cut)}, {}});
    EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
    EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("too short")));
  }
}

TEST(FramesTest, FurtherFramesAreDroppedWithoutAWord) {
  FramedRank rank;
  for (int i = 0; i < 3; ++i) rank.Arrive(Message(kWindow, 0));
  EXPECT_EQ(FramedRank::warnings().size(), 1u);
}

TEST(FramesTest, AWindowOfTheLargestMessagesKeepsEachApart) {
  FramedRank rank;
  for (uint64_t number = kWindow; number-- > 0;) {  // one window may arrive in any order
    WireHeader wire = Message(number, kEarly);
    wire.header_bytes = kMessageHeaderBytes;
    rank.Arrive(wire, Filled(kEarly, static_cast<int>(number)),
                Filled(kMessageHeaderBytes, static_cast<int>(number)));
  }
  EXPECT_THAT(FramedRank::warnings(), IsEmpty());
  for (uint64_t number = 0; number < kWindow; ++number) {
    Receiving receiving(rank);
    ASSERT_EQ(receiving.Test(), kHeader);
    EXPECT_EQ(receiving.header(), Filled(64, static_cast<int>(number)));
    receiving.Accept(kEarly);
    ASSERT_EQ(receiving.Test(), kDone);
    ASSERT_EQ(receiving.payload(), Filled(kEarly, static_cast<int>(number)));
  }
}

TEST(FramesTest, AMessageThatComesAgainChangesNothing) {
  for (const bool is_withdrawn : {false, true}) {
    SCOPED_TRACE(is_withdrawn);
    FramedRank rank;
    rank.Arrive(Message(0, kEager), Filled(kEager, 1));
    rank.Arrive(Message(1, kEager), Filled(kEager, 2));
    if (is_withdrawn) rank.Arrive(Of(WireType::kWithdraw, 1));
    rank.Arrive(Message(1, kEager), Filled(kEager, 9));
    EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("comes twice")));
    EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 1));
    Receiving second(rank);
    EXPECT_EQ(second.Test(), is_withdrawn ? kPending : kHeader);
    if (!is_withdrawn) {
      second.Accept(kEager);
      EXPECT_EQ(second.payload(), Filled(kEager, 2));
    } else {
      second.Cancel();
    }
  }
}

TEST(FramesTest, AMessageThatAReceiveHasTakenDoesNotComeAgain) {
  FramedRank rank;
  rank.Arrive(Message(0, kEager), Filled(kEager, 1));
  Receiving receiving(rank);
  EXPECT_EQ(receiving.Test(), kHeader);
  rank.Arrive(Message(0, kEager), Filled(kEager, 9));
  EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("out of order")));
  receiving.Accept(kEager);
  EXPECT_EQ(receiving.payload(), Filled(kEager, 1));
  EXPECT_EQ(receiving.Test(), kDone);
}

TEST(FramesTest, APieceOutsideThePayloadWritesNothing) {
  struct Piece {
    uint64_t begin;
    size_t bytes;
  };
  const Piece pieces[] = {
      {kLarge - kPiece + 1, kPiece},     {kLarge, 1},    {kLarge + kPiece, 0}, {UINT64_MAX, kPiece},
      {UINT64_MAX - kPiece + 1, kPiece}, {0, kLarge + 1}};
  for (const Piece& piece : pieces) {
    SCOPED_TRACE(piece.begin);
    FramedRank rank;
    rank.Arrive(Message(0, kLarge));
    Receiving receiving(rank);
    receiving.Accept(kLarge);
    rank.Arrive(Data(0, piece.begin), Filled(piece.bytes, 1));
    EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("outside the payload")));
    EXPECT_TRUE(receiving.is_untouched());
    EXPECT_EQ(receiving.Test(), kPending);
    receiving.Cancel();
  }
}

TEST(FramesTest, APieceOutsideAnEarlyPayloadTouchesNoOtherMessage) {
  FramedRank rank;
  rank.Arrive(Message(0, 300), Filled(kPiece, 1));
  rank.Arrive(Message(1, kEager), Filled(kEager, 2));
  // Written at the first message, it would overrun into the second.
  rank.Arrive(Data(0, kPiece), Filled(kEarly, 9));
  EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("outside the payload")));
  rank.Arrive(Data(0, kPiece), Filled(300 - kPiece, 1));
  EXPECT_EQ(ReceiveNow(rank, 300), Filled(300, 1));
  EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 2));
}

TEST(FramesTest, APieceBeforeItsMessageIsDropped) {
  FramedRank rank;
  rank.Arrive(Data(0, 0), Filled(100, 9));
  rank.Arrive(Message(0, kLarge));
  Receiving receiving(rank);
  receiving.Accept(kLarge);
  rank.Arrive(Data(kWindow, 0), Filled(100, 9));  // it would have the same slot
  EXPECT_TRUE(receiving.is_untouched());
  EXPECT_EQ(receiving.Test(), kPending);
  receiving.Cancel();
}

TEST(FramesTest, APieceThatWasNotAskedForIsDropped) {
  FramedRank rank;
  rank.Arrive(Message(0, kLarge));
  rank.Arrive(Data(0, 0), Filled(kPiece, 9));  // nobody has received the header
  EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("not asked for")));
  Receiving receiving(rank);
  rank.Arrive(Data(0, 0), Filled(kPiece, 9));  // the caller has not decided
  receiving.Accept(kLarge);
  EXPECT_TRUE(receiving.is_untouched());
  receiving.Cancel();
}

// A piece that arrives twice must not count for one that never arrived.
TEST(FramesTest, APayloadIsDoneWhenAllOfItIsThere) {
  for (const size_t bytes : {size_t{600}, kLarge}) {
    SCOPED_TRACE(bytes);
    const bool is_early = bytes <= kEarly;
    for (const bool is_accepted : {false, true}) {
      if (!is_early && !is_accepted) continue;
      FramedRank rank;
      rank.Arrive(Message(0, bytes), Filled(is_early ? kPiece : 0, 1));
      Receiving receiving(rank);
      if (is_accepted) receiving.Accept(bytes);
      size_t begin = is_early ? kPiece : 0;
      rank.Arrive(Data(0, begin), Filled(100, 1));
      begin += 100;
      rank.Arrive(Data(0, begin - 100), Filled(100, 9));  // again
      EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("out of order")));
      rank.Arrive(Data(0, bytes - 100), Filled(100, 9));  // too soon
      if (!is_accepted) receiving.Accept(bytes);
      EXPECT_EQ(receiving.Test(), kPending);
      for (; begin < bytes; begin += 100) {
        rank.Arrive(Data(0, begin), Filled(std::min(bytes - begin, size_t{100}), 1));
      }
      EXPECT_EQ(receiving.Test(), kDone);
      EXPECT_EQ(receiving.payload(), Filled(bytes, 1));
      EXPECT_TRUE(receiving.is_untouched_around());
    }
  }
}

TEST(FramesTest, APieceAfterACancelWritesNothing) {
  FramedRank rank;
  rank.Arrive(Message(0, kLarge));
  Receiving receiving(rank);
  receiving.Accept(kLarge);
  EXPECT_EQ(rank.frames().CountSent(1, WireType::kAccept, 0), 1u);
  receiving.Cancel();
  EXPECT_EQ(rank.frames().CountSent(1, WireType::kDrop, 0), 1u);
  rank.Arrive(Data(0, 0), Filled(kPiece, 9));
  EXPECT_TRUE(receiving.is_untouched());
}

TEST(FramesTest, APieceThatComesWhileTheEndpointClosesWritesNothing) {
  std::vector<std::byte> memory = Filled(kLarge, 0xee);
  {
    FramedRank rank;
    rank.Arrive(Message(0, kLarge));
    std::vector<std::byte> header(kMessageHeaderBytes);
    Request* request = nullptr;
    ASSERT_EQ(rank.channel().Receive(1, header, &request), onebitSuccess);
    ASSERT_EQ(rank.channel().Accept(request, memory), onebitSuccess);
    const WireHeader wire = Data(0, 0);
    const auto bytes = std::as_bytes(std::span(&wire, 1));
    rank.frames().Arrive({{bytes.begin(), bytes.end()}, Filled(kPiece, 9)});
  }
  EXPECT_EQ(memory, Filled(kLarge, 0xee));
}

TEST(FramesTest, AMessageThatIsWithdrawnInTimeIsSkipped) {
  FramedRank rank;
  rank.Arrive(Of(WireType::kWithdraw, 0));  // its message comes later
  rank.Arrive(Message(0, kEager), Filled(kEager, 1));
  rank.Arrive(Message(1, kEager), Filled(kEager, 2));
  rank.Arrive(Of(WireType::kWithdraw, 1));
  rank.Arrive(Message(2, kEager), Filled(kEager, 3));
  EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 3));
  EXPECT_THAT(FramedRank::warnings(), IsEmpty());
}

// Otherwise a sender that withdraws all its offers would wait for room that only a receive makes.
TEST(FramesTest, WhatIsWithdrawnMakesRoomWithoutAReceive) {
  FramedRank rank;
  for (uint64_t number = 0; number < kWindow; ++number) {
    rank.Arrive(Message(number, kLarge));
    rank.Arrive(Of(WireType::kWithdraw, number));
  }
  rank.Arrive(Message(kWindow, kEager), Filled(kEager, 7));
  EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 7));
}

TEST(FramesTest, AWithdrawalOfAnotherNumberWithTheSamePlaceChangesNothing) {
  FramedRank rank;
  rank.Arrive(Of(WireType::kWithdraw, kWindow));  // beyond the window: not kept
  rank.Arrive(Message(0, kEager), Filled(kEager, 1));
  rank.Arrive(Of(WireType::kWithdraw, kWindow));  // the slot holds message 0
  EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 1));
  rank.Arrive(Of(WireType::kWithdraw, 0));  // too late: message 32 has the slot now
  for (uint64_t number = 1; number <= kWindow; ++number) {
    rank.Arrive(Message(number, kEager), Filled(kEager, static_cast<int>(number)));
    EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, static_cast<int>(number)));
  }
}

TEST(FramesTest, AWithdrawalFailsTheReceiveThatHasTheHeader) {
  for (const bool is_accepted : {false, true}) {
    SCOPED_TRACE(is_accepted);
    FramedRank rank;
    rank.Arrive(Message(0, kLarge));
    Receiving receiving(rank);
    if (is_accepted) receiving.Accept(kLarge);
    rank.Arrive(Of(WireType::kWithdraw, 0));
    if (!is_accepted) receiving.Accept(kLarge);
    rank.Arrive(Data(0, 0), Filled(kPiece, 9));
    EXPECT_EQ(receiving.Test(), -onebitRemoteError);  // the peer itself is healthy
    EXPECT_TRUE(receiving.is_untouched());
    EXPECT_THAT(rank.peer_errors(), IsEmpty());
    rank.Arrive(Message(1, kEager), Filled(kEager, 2));
    EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 2));
  }
}

TEST(FramesTest, WhatAPeerSentBeforeItsEndIsReceived) {
  FramedRank rank;
  rank.Arrive(Of(WireType::kBye, 2, 0));
  rank.Arrive(Message(0, kEager), Filled(kEager, 1));
  EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 1));
  Receiving second(rank);  // on its way
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(second.Test(), kPending);
  EXPECT_THAT(rank.peer_errors(), IsEmpty());
  rank.Arrive(Message(1, kLarge));
  second.Accept(kLarge);  // the peer ended without sending its payload
  EXPECT_EQ(second.Test(), -onebitRemoteError);
  Receiving third(rank);
  EXPECT_EQ(third.Test(), -onebitRemoteError);
  EXPECT_THAT(rank.peer_errors(), ElementsAre(onebitRemoteError));  // once for each peer
}

TEST(FramesTest, TheEndOfAPeerFailsWhatNeedsIt) {
  for (const bool is_lost : {false, true}) {
    SCOPED_TRACE(is_lost);
    FramedRank rank;
    rank.Arrive(Message(0, kLarge));
    Receiving receiving(rank);
    receiving.Accept(kLarge);
    Receiving next(rank);
    Request* sending = nullptr;
    const std::vector<std::byte> payload = Filled(kLarge, 1);
    ASSERT_EQ(rank.channel().Send(1, {}, payload, &sending), onebitSuccess);
    if (is_lost) {
      rank.frames().Lose(1);
      EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
    } else {
      rank.Arrive(Of(WireType::kBye, 1, 1));
    }
    const onebitResult_t error = is_lost ? onebitPeerLost : onebitRemoteError;
    rank.Arrive(Data(0, 0), Filled(kPiece, 9));
    EXPECT_TRUE(receiving.is_untouched());
    TransferState state;
    EXPECT_EQ(receiving.Test(), -error);
    EXPECT_EQ(next.Test(), -error);
    EXPECT_EQ(rank.channel().Test(sending, &state), error);
    EXPECT_EQ(rank.channel().Send(1, {}, {}, &sending), error);
    EXPECT_THAT(rank.peer_errors(), ElementsAre(error));
  }
}

// A send that is not eager, from rank 0 to rank 1.
class Sending {
 public:
  explicit Sending(FramedRank& rank, size_t bytes = kLarge)
      : rank_(rank), payload_(Filled(bytes, 5)) {
    EXPECT_EQ(rank.channel().Send(1, {}, payload_, &request_), onebitSuccess);
  }
  int Test() {
    TransferState state = TransferState::kPending;
    const onebitResult_t result = rank_.channel().Test(request_, &state);
    return result == onebitSuccess ? static_cast<int>(state) : -static_cast<int>(result);
  }
  void Cancel() { EXPECT_EQ(rank_.channel().Cancel(request_), onebitSuccess); }

 private:
  FramedRank& rank_;
  std::vector<std::byte> payload_;
  Request* request_ = nullptr;
};

size_t BytesOfData(const FramedRank& rank, uint64_t number) {
  size_t bytes = 0;
  for (const auto& frame : const_cast<FramedRank&>(rank).frames().sent()) {
    if (frame.wire.type == WireType::kData && frame.wire.number == number) {
      bytes += frame.payload.size();
    }
  }
  return bytes;
}

TEST(FramesTest, AnAnswerIsForItsMessageAndCountsOnce) {
  FramedRank rank;
  rank.Arrive(Of(WireType::kAccept, 0));  // before there is anything to accept
  rank.Arrive(Of(WireType::kDrop, 0));
  Sending sending(rank);
  rank.Arrive(Of(WireType::kAccept, kWindow));  // another number with the same slot
  rank.Arrive(Of(WireType::kDrop, kWindow));
  EXPECT_EQ(sending.Test(), kPending);
  EXPECT_EQ(BytesOfData(rank, 0), 0u);
  rank.Arrive(Of(WireType::kAccept, 0));
  rank.Arrive(Of(WireType::kAccept, 0));
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(BytesOfData(rank, 0), kLarge);
  EXPECT_EQ(sending.Test(), kPending);  // the peer has not released it
  WireHeader release = Of(WireType::kRelease, 0);
  release.released = 1;
  rank.Arrive(release);
  EXPECT_EQ(sending.Test(), kDone);
}

TEST(FramesTest, ARefusalFailsOneSendOnly) {
  FramedRank rank;
  Sending first(rank);
  Sending second(rank);
  rank.Arrive(Of(WireType::kDrop, 0));
  EXPECT_EQ(first.Test(), -onebitRemoteError);
  EXPECT_EQ(second.Test(), kPending);
  EXPECT_THAT(rank.peer_errors(), IsEmpty());
  second.Cancel();
  EXPECT_EQ(rank.frames().CountSent(1, WireType::kWithdraw, 1), 1u);
  rank.Arrive(Of(WireType::kAccept, 1));  // it was sent before the withdrawal arrived
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(BytesOfData(rank, 1), 0u);
}

TEST(FramesTest, AReleaseEndsOnlyWhatHasLeft) {
  FramedRank rank;
  Sending offered(rank);        // nobody has asked for it
  Sending early(rank, kPiece);  // all of it has been sent
  Sending later(rank, kPiece);
  WireHeader release = Of(WireType::kRelease, 0);
  release.released = 2;
  rank.Arrive(release);
  EXPECT_EQ(offered.Test(), kPending);
  EXPECT_EQ(early.Test(), kDone);
  EXPECT_EQ(later.Test(), kPending);
  release.released = 1;  // an older one that a newer one has overtaken
  rank.Arrive(release);
  release.released = 3;
  rank.Arrive(release);
  EXPECT_EQ(later.Test(), kDone);
  offered.Cancel();
}

TEST(FramesTest, ARankSendsAWindowAndWaitsForItsRelease) {
  FramedRank rank;
  Request* request = nullptr;
  for (uint64_t number = 0; number < kWindow; ++number) {
    ASSERT_EQ(rank.channel().Send(1, {}, {}, &request), onebitSuccess);
  }
  EXPECT_EQ(rank.channel().Send(1, {}, {}, &request), onebitInProgress);
  WireHeader release = Of(WireType::kRelease, 0);
  release.released = 1;
  rank.Arrive(release);
  rank.Arrive(Message(0, 0));  // an older frame, sent before the release
  EXPECT_EQ(rank.channel().Send(1, {}, {}, &request), onebitSuccess);
  EXPECT_EQ(rank.channel().Send(1, {}, {}, &request), onebitInProgress);
}

// A peer that breaks every rule counts as lost before queued frames fill memory.
TEST(FramesTest, AnswersThatFindNoRoomAreBounded) {
  FramedRank rank;
  rank.frames().set_has_room(false);
  for (uint64_t number = 0; number < 100 * kWindow && rank.peer_errors().empty(); ++number) {
    rank.Arrive(Message(number, kLarge));
    Receiving receiving(rank);
    if (receiving.Test() != kHeader) break;
    receiving.Cancel();  // queues a drop frame for each
  }
  Receiving last(rank);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(last.Test(), -onebitPeerLost);
}

// A day at most, so that no number of milliseconds overflows.
TEST(FramesTest, AWaitIsOfMilliseconds) {
  constexpr uint64_t kNsPerMs = 1'000'000;
  for (const uint64_t timeout_ms : {uint64_t{3'600'000}, uint64_t{86'400'000}, UINT64_MAX}) {
    FramedRank rank;
    EXPECT_EQ(rank.channel().Wait(0), onebitSuccess);  // what connect has heard
    Receiving receiving(rank);
    const WireHeader wire = Message(0, 0);
    const auto bytes = std::as_bytes(std::span(&wire, 1));
    rank.frames().ArriveInSleep({{bytes.begin(), bytes.end()}, {}});
    EXPECT_EQ(rank.channel().Wait(timeout_ms), onebitSuccess);
    EXPECT_EQ(receiving.Test(), kHeader);
    const uint64_t expected_ms = std::min<uint64_t>(timeout_ms, 86'400'000);
    EXPECT_LE(rank.frames().longest_sleep_ns(), expected_ms * kNsPerMs);
    EXPECT_GT(rank.frames().longest_sleep_ns(), (expected_ms - 600'000) * kNsPerMs);
    receiving.Cancel();
  }
}

// Over a shared network only this many bytes may be in flight to a peer.
TEST(FramesTest, APacedLinkTakesPayloadsUpToItsLimit) {
  for (const bool is_paced : {false, true}) {
    FramedRank rank;
    rank.frames().link(1)->isPaced = is_paced ? 1 : 0;
    constexpr size_t kHalf = channel::kMostPendingBytes / 2;
    Sending first(rank, kHalf), second(rank, kHalf);
    Request* request = nullptr;
    const std::vector<std::byte> third = Filled(kLarge, 1);
    const auto send = [&] { return rank.channel().Send(1, {}, third, &request); };
    if (is_paced) {
      EXPECT_EQ(send(), onebitInProgress);
      rank.Arrive(Of(WireType::kDrop, 0));  // it has room again
    }
    EXPECT_EQ(send(), onebitSuccess);
    EXPECT_EQ(rank.channel().Cancel(request), onebitSuccess);
    first.Cancel();
    second.Cancel();
  }
}

TEST(FramesTest, APeerIsToldOfRoomBeforeItRunsShort) {
  FramedRank rank;
  for (uint64_t number = 0; number < 2 * kWindow; ++number) {
    rank.Arrive(Message(number, kEager), Filled(kEager, 1));
    ReceiveNow(rank, kEager);
  }
  std::vector<uint64_t> told;
  for (const auto& frame : rank.frames().sent()) {
    if (frame.rank == 1 && frame.wire.type == WireType::kRelease) {
      told.push_back(frame.wire.released);
    }
  }
  EXPECT_THAT(told, ElementsAre(8, 16, 24, 32, 40, 48, 56, 64));
}

// Over memory a large payload through a slot would be copied once more.
TEST(FramesTest, OverMemoryLessIsEarly) {
  constexpr size_t kMost = 64u << 10;
  for (const bool is_paced : {false, true}) {
    SCOPED_TRACE(is_paced);
    FramedRank rank(2 * kMost);
    rank.frames().link(1)->isPaced = is_paced ? 1 : 0;
    Sending early(rank, kMost);
    Sending larger(rank, kMost + 1);
    while (BytesOfData(rank, 0) < kMost - kPiece) {  // the rest of it went with its header
      ASSERT_EQ(rank.channel().Progress(), onebitSuccess);
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
    EXPECT_GT(BytesOfData(rank, 0), 0u);
    EXPECT_EQ(BytesOfData(rank, 1) > 0, is_paced);
    early.Cancel();
    larger.Cancel();
    rank.Arrive(Message(0, kMost + 1));
    Receiving receiving(rank);
    receiving.Accept(kMost + 1);
    EXPECT_EQ(rank.frames().CountSent(1, WireType::kAccept, 0), is_paced ? 0u : 1u);
    receiving.Cancel();
  }
}

TEST(FramesTest, AnEarlyPieceThatFindsNoRoomGoesLater) {
  FramedRank rank;
  rank.frames().set_has_room_for_pieces(false);
  Sending sending(rank, 600);
  ASSERT_EQ(rank.frames().CountSent(1, WireType::kMessage, 0), 1u);
  rank.frames().set_has_room_for_pieces(true);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(BytesOfData(rank, 0), 600u);
  sending.Cancel();
}

TEST(FramesTest, APayloadThatIsRefusedIsReadNoMore) {
  FramedRank rank;
  rank.frames().set_has_room_for_pieces(false);
  Sending sending(rank);
  rank.Arrive(Of(WireType::kAccept, 0));
  rank.Arrive(Of(WireType::kDrop, 0));
  EXPECT_EQ(sending.Test(), -onebitRemoteError);
  rank.frames().set_has_room_for_pieces(true);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(BytesOfData(rank, 0), 0u);
}

// A piece carries a release, which must not overtake a queued drop of the same message.
TEST(FramesTest, PiecesGoBehindTheAnswersThatWait) {
  FramedRank rank;
  rank.Arrive(Message(0, kLarge));
  Receiving receiving(rank);
  receiving.Accept(kLarge);
  Sending sending(rank);
  rank.frames().set_has_room_for_others(false);
  receiving.Cancel();
  rank.Arrive(Of(WireType::kAccept, 0));
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(BytesOfData(rank, 0), 0u);
  rank.frames().set_has_room_for_others(true);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(rank.frames().CountSent(1, WireType::kDrop, 0), 1u);
  EXPECT_EQ(BytesOfData(rank, 0), kLarge);
  sending.Cancel();
}

TEST(FramesTest, AReceiveIsAcceptedInItsSizeAndThereIsOneAtATime) {
  FramedRank rank;
  std::vector<std::byte> header(kMessageHeaderBytes), memory(kEager + 1);
  Request* request = nullptr;
  Request* second = nullptr;
  ASSERT_EQ(rank.channel().Receive(1, header, &request), onebitSuccess);
  EXPECT_EQ(rank.channel().Receive(1, header, &second), onebitInvalidUsage);
  rank.Arrive(Message(0, kEager), Filled(kEager, 1));
  for (const size_t bytes : {kEager - 1, kEager + 1}) {
    EXPECT_EQ(rank.channel().Accept(request, std::span(memory).first(bytes)),
              onebitInvalidArgument);
  }
  EXPECT_EQ(rank.channel().Accept(request, std::span(memory).first(kEager)), onebitSuccess);
  TransferState state = TransferState::kPending;
  EXPECT_EQ(rank.channel().Test(request, &state), onebitSuccess);
  EXPECT_EQ(state, TransferState::kDone);
}

// Receives may end in any order, but a slot is released only after all slots before it.
TEST(FramesTest, ASlotInUseIsNotReleasedWithTheNext) {
  FramedRank rank;
  rank.Arrive(Message(0, kEager), Filled(kEager, 1));
  rank.Arrive(Message(1, kEager), Filled(kEager, 2));
  Receiving first(rank);
  EXPECT_EQ(first.Test(), kHeader);
  EXPECT_EQ(ReceiveNow(rank, kEager), Filled(kEager, 2));
  rank.Arrive(Message(kWindow, kEager), Filled(kEager, 9));  // would reuse the slot of the first
  EXPECT_THAT(FramedRank::warnings(), ElementsAre(HasSubstr("out of order")));
  first.Accept(kEager);
  EXPECT_EQ(first.payload(), Filled(kEager, 1));
  EXPECT_EQ(first.Test(), kDone);
}

TEST(SpinLockTest, HasOneHolder) {
  SpinLock lock;
  EXPECT_TRUE(lock.TryLock());
  EXPECT_FALSE(lock.TryLock());
  EXPECT_TRUE(lock.Unlock());
  EXPECT_TRUE(lock.TryLock());
}

TEST(FramesTest, AnswersWaitForRoomAndGoOutOnce) {
  FramedRank rank;
  rank.Arrive(Message(0, kLarge));
  Receiving receiving(rank);
  rank.frames().set_has_room(false);
  receiving.Accept(kLarge);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(rank.frames().CountSent(1, WireType::kAccept, 0), 0u);
  rank.frames().set_has_room(true);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(rank.channel().Progress(), onebitSuccess);
  EXPECT_EQ(rank.frames().CountSent(1, WireType::kAccept, 0), 1u);
  receiving.Cancel();
}

}  // namespace
}  // namespace onebit::testing
