// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_message.h"

#include <gtest/gtest.h>

namespace onebit {
namespace {

TEST(MeetingMessageTest, VisitKeepsItsFields) {
  Visit sent{.rank = 70'000,
             .is_question = true,
             .needs_quorum = false,
             .patience_ms = 3'000'000'000,
             .wish = {}};
  sent.wish.back() = 9;
  const Bytes bytes = Encode(VisitorMessage(sent));
  EXPECT_LE(bytes.size(), kMostVisitorMessageBytes);
  const auto received = std::get<Visit>(DecodeVisitorMessage(bytes).value());
  EXPECT_EQ(received.rank, 70'000u);
  EXPECT_TRUE(received.is_question);
  EXPECT_FALSE(received.needs_quorum);
  EXPECT_EQ(received.patience_ms, 3'000'000'000);
  EXPECT_EQ(received.wish, sent.wish);
}

TEST(MeetingMessageTest, HostMessagesKeepTheirFields) {
  const auto again = [](const HostMessage& message) {
    const Bytes bytes = Encode(message);
    EXPECT_LE(bytes.size(), MostHostMessageBytes(3));
    return DecodeHostMessage(bytes).value();
  };
  const auto state = std::get<HostState>(
      again(HostState{.is_away = true, .is_other_wish = false, .missing = 9, .some_missing = {2}}));
  EXPECT_TRUE(state.is_away);
  EXPECT_FALSE(state.is_other_wish);
  EXPECT_EQ(state.missing, 9u);
  EXPECT_EQ(state.some_missing, std::vector<uint32_t>{2});
  EXPECT_EQ(std::get<MoveTo>(again(MoveTo{4})).host, 4u);
  GoOn go{.members = {0, 2, 3}, .port = 4711, .key = {}};
  go.key.bytes[3] = 77;
  const auto went = std::get<GoOn>(again(go));
  EXPECT_EQ(went.members, go.members);
  EXPECT_EQ(went.port, 4711);
  EXPECT_EQ(went.key.bytes, go.key.bytes);
  const Refusal refused{.cause = Refusal::Cause::kTooFew,
                        .went_on = 100'000,
                        .text = std::string(2 * kMostRefusalText, 'x')};
  const auto told = std::get<Refusal>(again(refused));
  EXPECT_EQ(told.cause, Refusal::Cause::kTooFew);
  EXPECT_EQ(told.went_on, 100'000u);
  EXPECT_EQ(told.text.size(), kMostRefusalText);
}

// Every prefix, every addition, and values that no field has.
TEST(MeetingMessageTest, WhatEncodeDoesNotWriteIsCorrupt) {
  const Bytes visit = Encode(VisitorMessage(Visit{.rank = 1}));
  const Bytes go = Encode(HostMessage(GoOn{.members = {0, 1}, .port = 1, .key = {}}));
  for (size_t size = 0; size < visit.size(); ++size) {
    EXPECT_FALSE(DecodeVisitorMessage(std::span(visit).first(size)).ok()) << size;
  }
  for (size_t size = 0; size < go.size(); ++size) {
    EXPECT_FALSE(DecodeHostMessage(std::span(go).first(size)).ok()) << size;
  }
  Bytes longer = visit;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(DecodeVisitorMessage(longer).ok());
  Bytes flag = visit;
  flag[5] = std::byte{2};
  EXPECT_FALSE(DecodeVisitorMessage(flag).ok());
  Bytes cause = Encode(HostMessage(Refusal{}));
  cause[1] = std::byte{4};
  EXPECT_FALSE(DecodeHostMessage(cause).ok());
  EXPECT_FALSE(DecodeVisitorMessage(go).ok());
  EXPECT_FALSE(DecodeHostMessage(visit).ok());
}

}  // namespace
}  // namespace onebit
