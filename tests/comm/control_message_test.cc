// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Control messages: written ones are read back, and nothing else is accepted.
#include "comm/control_message.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace onebit {
namespace {

Bytes BytesOf(std::string_view text) {
  const auto bytes = AsBytes(text);
  return {bytes.begin(), bytes.end()};
}

std::vector<RankMessage> RankMessages() {
  return {
      Join{.rank = 3,
           .ranks = 65'536,
           .heartbeat_ms = 1,
           .loss_timeout_ms = 2,
           .process = "a:1",
           .job = "ONEBIT_JOB=x"},
      Join{},
      Gather{.number = 1ull << 40, .content = BytesOf("content")},
      Gather{},
      Report{.lost = {}, .cause = Error(Code::kCorrupt, "rank 1: bad")},
      Report{.lost = 2, .cause = Error(Code::kPeerLost, "connection reset")},
      RecordBatch{.skipped = 1ull << 50,
                  .records = {{.sequence = 1ull << 51, .digest = 0x0123'4567, .text = "allreduce"},
                              {.sequence = (1ull << 51) + 1, .digest = 0, .text = ""}}},
      WhoIsMissing{},
      Leave{},
      RankAlive{},
      Waits{.is_gather = true, .gathers = 1ull << 40, .calls = 1ull << 41, .what = "splitting"},
      Waits{}};
}

std::vector<HubMessage> HubMessages() {
  return {Joined{.comm_id = 0x0123'4567'89ab'cdefull, .process = "host:12"},
          Gathered{.number = 5, .contents = {BytesOf("x"), {}, BytesOf("yz")}},
          Gathered{},
          Failed{{.rank = 7, .is_loss = true, .cause = Error(Code::kPeerLost, "gone")}},
          Failed{{.rank = 0, .is_loss = false, .cause = Error(Code::kTimeout, "")}},
          Failed{{.rank = 1, .is_of_group = true, .cause = Error(Code::kMismatch, "differ")}},
          HubAlive{.missing = 9, .some_missing = {1, 2, 65'535}, .note = "b:2, rank 1"},
          HubAlive{},
          MayEnd{},
          Refused{.is_other_job = true, .cause = Error(Code::kMismatch, "another job")},
          Refused{.is_other_job = false, .cause = Error(Code::kInvalidArgument, "")}};
}

Result<RankMessage> Decode(const RankMessage&, std::span<const std::byte> bytes) {
  return DecodeRankMessage(bytes);
}
Result<HubMessage> Decode(const HubMessage&, std::span<const std::byte> bytes) {
  return DecodeHubMessage(bytes);
}

// Calls `check` with every message of both directions.
template <typename Check>
void ForEachMessage(Check check) {
  for (const RankMessage& message : RankMessages()) {
    SCOPED_TRACE("rank message " + std::to_string(message.index()));
    check(message);
  }
  for (const HubMessage& message : HubMessages()) {
    SCOPED_TRACE("hub message " + std::to_string(message.index()));
    check(message);
  }
}

TEST(ControlMessageTest, EveryKindComesBackAsItWas) {
  ForEachMessage([](const auto& message) {
    const Bytes bytes = Encode(message);
    const auto decoded = Decode(message, bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().text();
    EXPECT_EQ(decoded.value().index(), message.index());
    EXPECT_EQ(Encode(decoded.value()), bytes);
  });
}

TEST(ControlMessageTest, FieldsAreWhereTheyBelong) {
  const auto join = std::get<Join>(DecodeRankMessage(Encode(RankMessages()[0])).value());
  EXPECT_EQ(join.rank, 3u);
  EXPECT_EQ(join.ranks, 65'536u);
  EXPECT_EQ(join.heartbeat_ms, 1u);
  EXPECT_EQ(join.loss_timeout_ms, 2u);
  EXPECT_EQ(join.process, "a:1");
  EXPECT_EQ(join.job, "ONEBIT_JOB=x");
  const auto report = std::get<Report>(DecodeRankMessage(Encode(RankMessages()[4])).value());
  EXPECT_EQ(report.cause.code(), Code::kCorrupt);
  EXPECT_EQ(report.cause.text(), "rank 1: bad");
  const auto calls = std::get<RecordBatch>(DecodeRankMessage(Encode(RankMessages()[6])).value());
  EXPECT_EQ(calls.skipped, 1ull << 50);
  ASSERT_EQ(calls.records.size(), 2u);
  EXPECT_EQ(calls.records[0].sequence, 1ull << 51);
  EXPECT_EQ(calls.records[0].digest, 0x0123'4567u);
  EXPECT_EQ(calls.records[0].text, "allreduce");
  EXPECT_EQ(calls.records[1].sequence, (1ull << 51) + 1);
  const auto failed = std::get<Failed>(DecodeHubMessage(Encode(HubMessages()[3])).value());
  EXPECT_EQ(failed.first.rank, 7);
  EXPECT_TRUE(failed.first.is_loss);
  EXPECT_EQ(failed.first.cause.code(), Code::kPeerLost);
}

TEST(ControlMessageTest, EveryTruncationIsRefused) {
  ForEachMessage([](const auto& message) {
    const Bytes bytes = Encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      const auto decoded = Decode(message, std::span(bytes).first(size));
      ASSERT_FALSE(decoded.ok()) << size << " of " << bytes.size();
      EXPECT_EQ(decoded.status().code(), Code::kCorrupt);
    }
  });
}

TEST(ControlMessageTest, BytesBehindTheEndAreRefused) {
  ForEachMessage([](const auto& message) {
    Bytes bytes = Encode(message);
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(Decode(message, bytes).ok());
  });
}

TEST(ControlMessageTest, MessagesOfTheOtherDirectionAndUnknownKindsAreRefused) {
  for (const RankMessage& message : RankMessages()) {
    EXPECT_FALSE(DecodeHubMessage(Encode(message)).ok());
  }
  for (const HubMessage& message : HubMessages()) {
    EXPECT_FALSE(DecodeRankMessage(Encode(message)).ok());
  }
  for (const uint8_t kind : {0, 8, 16, 22, 255}) {
    for (const size_t more : {0, 20}) {
      Bytes bytes(1 + more, std::byte{0});
      bytes[0] = std::byte{kind};
      EXPECT_FALSE(DecodeRankMessage(bytes).ok()) << int{kind};
      EXPECT_FALSE(DecodeHubMessage(bytes).ok()) << int{kind};
    }
  }
}

TEST(ControlMessageTest, CountsThatPromiseMoreThanThereIsAreRefused) {
  // If memory were allocated for the count, these would need tens of gigabytes.
  const Bytes gathered = ByteWriter()
                             .Integer(uint8_t{18})
                             .Integer(uint64_t{0})
                             .Integer(uint32_t{0xffff'ffff})
                             .Text("x")
                             .Take();
  EXPECT_FALSE(DecodeHubMessage(gathered).ok());
  const Bytes alive = ByteWriter()
                          .Integer(uint8_t{20})
                          .Integer(uint32_t{1})
                          .Integer(uint32_t{0xffff'ffff})
                          .Integer(uint32_t{1})
                          .Take();
  EXPECT_FALSE(DecodeHubMessage(alive).ok());
  const Bytes gather =
      ByteWriter().Integer(uint8_t{2}).Integer(uint64_t{0}).Integer(uint32_t{0xffff'ffff}).Take();
  EXPECT_FALSE(DecodeRankMessage(gather).ok());
  const Bytes calls = ByteWriter()
                          .Integer(uint8_t{7})
                          .Integer(uint64_t{0})
                          .Integer(uint64_t{0})
                          .Integer(uint32_t{0xffff'ffff})
                          .Integer(uint32_t{1})
                          .Text("x")
                          .Take();
  EXPECT_FALSE(DecodeRankMessage(calls).ok());
}

TEST(ControlMessageTest, AFailureIsOfARankALossOrOfTheGroup) {
  Bytes bytes = Encode(HubMessage(Failed{{.rank = 1, .is_loss = true, .cause = {}}}));
  for (const uint8_t source : {0, 1, 2}) {
    bytes[5] = std::byte{source};
    const auto decoded = DecodeHubMessage(bytes);
    ASSERT_TRUE(decoded.ok());
    const Failure& failure = std::get<Failed>(decoded.value()).first;
    EXPECT_EQ(failure.is_loss, source == 1);
    EXPECT_EQ(failure.is_of_group, source == 2);
  }
  bytes[5] = std::byte{3};
  EXPECT_FALSE(DecodeHubMessage(bytes).ok());
}

// A rank must fit an int, whatever the bytes say.
TEST(ControlMessageTest, AFailureIsOfNoRankBeyondTheLimit) {
  Bytes bytes = Encode(HubMessage(Failed{{.rank = 1, .is_loss = true, .cause = {}}}));
  for (const uint32_t rank : {uint32_t{7}, kMaxRanks, kMaxRanks + 1, 0x8000'0000u, 0xffff'ffffu}) {
    for (size_t i = 0; i < 4; ++i) bytes[1 + i] = static_cast<std::byte>(rank >> (8 * i));
    const auto decoded = DecodeHubMessage(bytes);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(std::get<Failed>(decoded.value()).first.rank,
              static_cast<int>(std::min(rank, kMaxRanks)));
  }
}

TEST(ControlMessageTest, CallsAreAtLeastOneWithAShortText) {
  const auto begin = [](uint32_t count) {
    ByteWriter writer;
    writer.Integer(uint8_t{7}).Integer(uint64_t{0}).Integer(uint64_t{0}).Integer(count);
    return writer;
  };
  EXPECT_FALSE(DecodeRankMessage(begin(0).Take()).ok());
  for (const size_t size : {kMaxCallTextBytes, kMaxCallTextBytes + 1}) {
    const Bytes bytes = begin(1).Integer(uint32_t{0}).Text(std::string(size, 'x')).Take();
    EXPECT_EQ(DecodeRankMessage(bytes).ok(), size == kMaxCallTextBytes);
  }
  const RecordBatch calls = {.records = {{.text = std::string(5000, 'x')}}};
  const auto decoded = DecodeRankMessage(Encode(RankMessage(calls)));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<RecordBatch>(decoded.value()).records[0].text.size(), kMaxCallTextBytes);
}

TEST(ControlMessageTest, AnErrorStaysAnErrorWhateverItsCode) {
  for (const uint32_t code : {0u, 7u, 9u, 99u, 107u, 0xffff'ffffu}) {
    const Bytes bytes =
        ByteWriter().Integer(uint8_t{3}).Integer(UINT32_MAX).Integer(code).Text("why").Take();
    const auto report = DecodeRankMessage(bytes);
    ASSERT_TRUE(report.ok()) << code;
    EXPECT_EQ(std::get<Report>(report.value()).cause.code(), Code::kInternalError) << code;
    EXPECT_EQ(std::get<Report>(report.value()).cause.text(), "why");
  }
}

TEST(ControlMessageTest, LongTextsAreCutAndFitTheBounds) {
  const std::string text(3 * kMaxContentBytes, 'x');
  const Bytes report = Encode(RankMessage(Report{.lost = {}, .cause = {Code::kCorrupt, text}}));
  EXPECT_LE(report.size(), kMostRankMessageBytes);
  EXPECT_LE(Encode(RankMessage(Join{.process = text})).size(), kMostRankMessageBytes);
  const auto decoded = DecodeRankMessage(report);
  EXPECT_EQ(std::get<Report>(decoded.value()).cause.text(), text.substr(0, kMaxContentBytes));
  const Failure failure = {.rank = 0, .is_loss = false, .cause = {Code::kCorrupt, text}};
  EXPECT_LE(Encode(HubMessage(Failed{failure})).size(), MostHubMessageBytes(1));
}

TEST(ControlMessageTest, TheLargestMessagesFitTheBounds) {
  const Bytes content(kMaxContentBytes);
  EXPECT_LE(Encode(RankMessage(Gather{.number = 1, .content = content})).size(),
            kMostRankMessageBytes);
  for (const uint32_t ranks : {1u, 2u, 100u}) {
    const Gathered gathered = {.number = 1, .contents = std::vector<Bytes>(ranks, content)};
    EXPECT_LE(Encode(HubMessage(gathered)).size(), MostHubMessageBytes(ranks));
  }
}

}  // namespace
}  // namespace onebit
