// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages of a single call, written by hand after FORMAT.md: correct ones are accepted, each kind
// of mistake is reported, and flags reach the messages and residuals that depend on them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/scripted_rank.h"

namespace onebit::testing {
namespace {

constexpr uint32_t kBlock = 64;

void ExpectError(const Status& status, Code code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status.text();
  EXPECT_NE(status.text().find(text), std::string::npos) << status.text();
}

// A dense sum in two exchanges, with two segments a chunk. Rank 0 serves the first chunk, for which
// the peer has the values 1 and 2 in its segments; the second chunk arrives reduced, as 3 and 4.
class DenseWireTest : public ::testing::Test {
 protected:
  static constexpr size_t kSegment = 64;
  static constexpr size_t kElements = 4 * kSegment;

  ScriptedMessage MessageOf(int exchange, int segment) {
    MessageHeader header = change_;
    header.call = DescriptorOf(request_, rank_.comm());
    header.exchange = static_cast<uint8_t>(exchange);
    header.segment = static_cast<uint16_t>(segment);
    const std::vector<float> values(kSegment, static_cast<float>(2 * (exchange - 1) + segment + 1));
    return testing::MessageOf(header, std::as_bytes(std::span(values)));
  }
  Status Run(std::deque<ScriptedMessage> messages) {
    return rank_.Run({&request_, 1}, std::move(messages));
  }

  ScriptedRank rank_{{.segment_elements = kElements}};
  std::vector<float> input_ = std::vector<float>(kElements, 10);
  std::vector<float> output_ = std::vector<float>(kElements);
  CallRequest request_ = {.collective = Collective::kAllReduce,
                          .sendbuff = input_.data(),
                          .recvbuff = output_.data(),
                          .count = kElements};
  MessageHeader change_ = {.segment_count = 2};  // tests corrupt its members
};

TEST_F(DenseWireTest, SegmentsMayComeInAnyOrder) {
  const Status status = Run({MessageOf(2, 1), MessageOf(1, 1), MessageOf(2, 0), MessageOf(1, 0)});
  ASSERT_TRUE(status.ok()) << status.text();
  for (size_t i = 0; i < kElements; ++i) {
    constexpr float kExpected[] = {10 + 1, 10 + 2, 3, 4};
    ASSERT_EQ(output_[i], kExpected[i / kSegment]) << i;
  }
  EXPECT_EQ(ScriptedTransport::sent().size(), 4u);
}

TEST_F(DenseWireTest, APayloadOfAnotherLengthIsCorrupt) {
  for (const size_t elements : {kSegment - 1, kSegment + 1}) {
    ScriptedRank rank({.segment_elements = kElements});  // an error disables a communicator
    const MessageHeader header = {.call = DescriptorOf(request_, rank.comm()), .segment_count = 2};
    const std::vector<float> values(elements);
    ExpectError(
        rank.Run({&request_, 1}, {testing::MessageOf(header, std::as_bytes(std::span(values)))}),
        Code::kCorrupt, "payload bytes for segment 0 of exchange 1, not 256");
  }
}

TEST_F(DenseWireTest, AnotherNumberOfSegmentsIsAMismatch) {
  change_.segment_count = 3;
  ExpectError(Run({MessageOf(1, 0)}), Code::kMismatch,
              "rank 1 sends 3 segments per chunk, this rank 2");
}

TEST_F(DenseWireTest, ASegmentThatComesTwiceIsCorrupt) {
  ExpectError(Run({MessageOf(1, 0), MessageOf(1, 0)}), Code::kCorrupt,
              "rank 1 sent segment 0 of exchange 1 twice or unasked");
}

TEST_F(DenseWireTest, AFailureOfThePeerIsOneHere) {
  change_.has_failed = true;
  ExpectError(Run({MessageOf(1, 0)}), Code::kRemoteError, "rank 1 failed in");
}

TEST_F(DenseWireTest, ADenseCallHasNoFlag) {
  change_.is_nonfinite = true;
  ExpectError(Run({MessageOf(1, 0)}), Code::kCorrupt, "flags that do not fit a dense call");
}

// A payload that comes too late would be written to memory that is the caller's again, and one that
// leaves too late would be read from it.
TEST_F(DenseWireTest, NothingIsOutstandingAfterAnError) {
  constexpr size_t kLargeSegment = kScriptedEagerBytes / sizeof(float) + 64;
  std::vector<float> values(4 * kLargeSegment, 10);
  ScriptedRank rank({.segment_elements = 4 * kLargeSegment});
  const CallRequest request = {.collective = Collective::kAllReduce,
                               .sendbuff = values.data(),
                               .recvbuff = values.data(),
                               .count = values.size()};
  MessageHeader header = {.call = DescriptorOf(request, rank.comm()), .segment_count = 2};
  const auto payload = std::as_bytes(std::span(values)).first(kLargeSegment * sizeof(float));
  ScriptedMessage accepted = testing::MessageOf(header, payload);
  accepted.is_withheld = true;
  header.has_failed = true;
  ExpectError(rank.Run({&request, 1}, {accepted, testing::MessageOf(header, {})}),
              Code::kRemoteError, "rank 1 failed in");
  EXPECT_EQ(ScriptedTransport::given_up(), 1);
  EXPECT_EQ(ScriptedTransport::withdrawn(), 2);  // the segments of rank 1's chunk
}

TEST(SilentPeerTest, EndsAtTheDeadline) {
  ScriptedRank rank({.timeout_ms = 50});
  const CallRequest barrier = {.collective = Collective::kBarrier};
  const Status status = rank.Run({&barrier, 1}, {});
  ExpectError(status, Code::kTimeout, "ONEBIT_COLLECTIVE_TIMEOUT_MS");
  ExpectError(status, Code::kTimeout, "does every rank make this call");
}

// The program is not asked what the network has done.
TEST(SilentPeerTest, MessagesThatDoNotArriveAreTheCause) {
  ScriptedRank rank({.timeout_ms = 50});
  const CallRequest barrier = {.collective = Collective::kBarrier};
  ScriptedTransport::SetStuck(true);
  const Status status = rank.Run({&barrier, 1}, {});
  ScriptedTransport::SetStuck(false);
  ExpectError(status, Code::kTimeout,
              "messages to rank 1 do not arrive, though small ones do, or the rank would be lost");
  ExpectError(status, Code::kTimeout, "compare the path MTU");
  ExpectError(status, Code::kTimeout, "a script, 7 bytes lost");
  EXPECT_EQ(status.text().find("does every rank"), std::string::npos) << status.text();
}

// A compressed sum. Every packet of the peer has scales of 2 and positive signs.
class CompressedWireTest : public ::testing::Test {
 protected:
  static CallRequest RequestOf(std::vector<float>& values, PlannedCompressor& compressor) {
    return {.collective = Collective::kAllReduce,
            .sendbuff = values.data(),
            .recvbuff = values.data(),
            .count = values.size(),
            .compressor = &compressor};
  }
  static ScriptedMessage MessageOf(const CallDescriptor& call, int exchange, size_t elements,
                                   bool is_nonfinite) {
    const std::vector<float> scales((elements + kBlock - 1) / kBlock, 2.0f);
    std::vector<std::byte> packet(scales.size() * sizeof(float) + (elements + 7) / 8);
    std::ranges::copy(std::as_bytes(std::span(scales)), packet.begin());
    return testing::MessageOf({.call = call,
                               .exchange = static_cast<uint8_t>(exchange),
                               .is_nonfinite = is_nonfinite,
                               .has_payload_checksum = true},
                              packet);
  }
};

// The peer's contribution to this rank's chunk is not finite, so the reduced chunk that the second
// exchange sends back is not finite either.
TEST_F(CompressedWireTest, WhatIsMadeOfANaNIsSentAsOne) {
  constexpr size_t kChunk = 128;
  ScriptedRank rank({});
  PlannedCompressor compressor =
      rank.NewCompressor({.codec = {.kind = CodecKind::kEf, .block = kBlock}, .count = 2 * kChunk});
  std::vector<float> values(2 * kChunk, 1.0f);
  const CallRequest request = RequestOf(values, compressor);
  const CallDescriptor call = DescriptorOf(request, rank.comm());
  const Status status = rank.Run(
      {&request, 1}, {MessageOf(call, 1, kChunk, true), MessageOf(call, 2, kChunk, false)});
  ASSERT_TRUE(status.ok()) << status.text();
  ASSERT_EQ(ScriptedTransport::sent().size(), 2u);
  for (const auto& bytes : ScriptedTransport::sent()) {
    const auto header = DecodeHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status().text();
    EXPECT_EQ(header.value().is_nonfinite, header.value().exchange == 2);
  }
  EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return std::isnan(value); }));
  EXPECT_EQ(compressor.compressor.epoch(), 0u);
  EXPECT_EQ(compressor.compressor.nonfinite_calls(), 1u);
}

// In one exchange every rank keeps a replica of the server residual.
TEST_F(CompressedWireTest, AReplicaOfAnotherAgeIsAMismatch) {
  constexpr size_t kElements = 70;
  ScriptedRank rank({.one_exchange_elements = kElements});
  PlannedCompressor compressor =
      rank.NewCompressor({.codec = {.kind = CodecKind::kEf, .block = kBlock}, .count = kElements});
  std::vector<float> values(kElements, 1.0f);
  const CallRequest request = RequestOf(values, compressor);
  CallDescriptor call = DescriptorOf(request, rank.comm());
  const Status status = rank.Run({&request, 1}, {MessageOf(call, 1, kElements, false)});
  ASSERT_TRUE(status.ok()) << status.text();
  call.sequence = 1;  // the peer still has the age of the first call
  ExpectError(rank.Run({&request, 1}, {MessageOf(call, 1, kElements, false)}), Code::kMismatch,
              "age of the server residual (calls since it was zero) 1 here, 0 there");
}

// With one exchange, ranks that round their scales differently would end with different results.
TEST_F(CompressedWireTest, StochasticScalesOfAnEarlierLibraryAreAMismatch) {
  constexpr size_t kElements = 70;
  ScriptedRank rank({.one_exchange_elements = kElements});
  PlannedCompressor compressor =
      rank.NewCompressor({.codec = {.kind = CodecKind::kLowBit,
                                    .low_bit = kernels::LowBitCodec::kInt8Stochastic,
                                    .block = kBlock},
                          .count = kElements});
  std::vector<float> values(kElements, 1.0f);
  const CallRequest request = RequestOf(values, compressor);
  CallDescriptor call = DescriptorOf(request, rank.comm());
  call.codec.has_former_scales = true;
  ExpectError(rank.Run({&request, 1}, {MessageOf(call, 1, kElements, false)}), Code::kMismatch,
              "scales of int8s (use one version of onebit on all ranks) rounded up here, rounded "
              "to nearest there");
}

// Cuts decide where scales end and bits begin.
TEST_F(CompressedWireTest, OtherCutsAreAMismatch) {
  constexpr size_t kElements = 256;
  ScriptedRank rank({.one_exchange_elements = kElements});
  const auto compressor_with = [&](size_t cut) {
    return rank.NewCompressor({.codec = {.kind = CodecKind::kSign, .block = kBlock},
                               .count = kElements,
                               .cuts = Cuts::Create(std::vector<size_t>{cut}, kElements).value()});
  };
  PlannedCompressor here = compressor_with(100);
  PlannedCompressor there = compressor_with(101);
  std::vector<float> values(kElements, 1.0f);
  const CallRequest request = RequestOf(values, here);
  const CallDescriptor call = DescriptorOf(RequestOf(values, there), rank.comm());
  ExpectError(rank.Run({&request, 1}, {MessageOf(call, 1, kElements, false)}), Code::kMismatch,
              "digest of mask and cuts");
}

// A compressed mean of two ranks with weights, in chunks of two segments. Rank 0 has 1 everywhere
// and the weight 1; the peer's packets have scales of 2 and positive signs.
class WeightedWireTest : public CompressedWireTest {
 protected:
  static constexpr size_t kSegment = 64;
  static constexpr size_t kElements = 4 * kSegment;

  WeightedWireTest() {
    compressor_.compressor.set_weight(1);
    request_.op = ReduceOp::kAvg;
  }

  enum class Behind { kNothing, kPacket };
  ScriptedMessage First(int segment, float weight, Behind behind) {
    std::vector<std::byte> payload(kWeightBytes);
    SetWeight(weight, payload.data());
    if (behind == Behind::kPacket) payload.insert(payload.end(), packet_.begin(), packet_.end());
    return Message(1, segment, payload);
  }
  ScriptedMessage Second(int segment) { return Message(2, segment, packet_); }
  ScriptedMessage Message(int exchange, int segment, std::span<const std::byte> payload) {
    CallDescriptor call = DescriptorOf(request_, rank_.comm());
    call.sequence = sequence_;
    return testing::MessageOf({.call = call,
                               .exchange = static_cast<uint8_t>(exchange),
                               .has_payload_checksum = true,
                               .segment = static_cast<uint16_t>(segment),
                               .segment_count = 2},
                              payload);
  }
  Status Run(std::deque<ScriptedMessage> messages) {
    return rank_.Run({&request_, 1}, std::move(messages));
  }

  ScriptedRank rank_{{.segment_elements = kSegment}};
  PlannedCompressor compressor_ =
      rank_.NewCompressor({.codec = {.kind = CodecKind::kSign, .block = kBlock},
                           .count = kElements,
                           .is_weighted = true});
  std::vector<float> values_ = std::vector<float>(kElements, 1.0f);
  CallRequest request_ = RequestOf(values_, compressor_);
  uint64_t sequence_ = 0;  // of the peer's messages
  const std::vector<std::byte> packet_ = [] {
    std::vector<std::byte> packet(sizeof(float) + kSegment / 8);
    const float scale = 2;
    std::memcpy(packet.data(), &scale, sizeof(scale));
    return packet;
  }();
};

TEST_F(WeightedWireTest, APeerCountsWithItsWeight) {
  const Status status =
      Run({First(0, 3, Behind::kPacket), First(1, 3, Behind::kPacket), Second(0), Second(1)});
  ASSERT_TRUE(status.ok()) << status.text();
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(values_[i], i < kElements / 2 ? (1 * 1 + 3 * 2) / 4.0f : 2) << i;
  }
}

TEST_F(WeightedWireTest, AnAbsentPeerSendsItsWeightAlone) {
  const Status status =
      Run({First(0, 0, Behind::kNothing), First(1, 0, Behind::kNothing), Second(0), Second(1)});
  ASSERT_TRUE(status.ok()) << status.text();
  for (size_t i = 0; i < kElements; ++i) ASSERT_EQ(values_[i], i < kElements / 2 ? 1 : 2) << i;
  for (const auto& bytes : ScriptedTransport::sent()) {
    const auto header = DecodeHeader(bytes);
    ASSERT_TRUE(header.ok()) << header.status().text();
    EXPECT_TRUE(header.value().call.is_weighted);
  }
}

TEST_F(WeightedWireTest, AnAbsentRankKeepsItsResidual) {
  PlannedCompressor compressor =
      rank_.NewCompressor({.codec = {.kind = CodecKind::kEf, .block = kBlock},
                           .count = kElements,
                           .tensor_id = 1,
                           .is_weighted = true});
  request_.compressor = &compressor;
  Compressor& state = compressor.compressor;
  const auto residual = [&] {
    const float* const values = AsFloats(state.worker_base());
    return std::vector<float>(values, values + kElements);
  };
  std::vector<std::vector<float>> residuals;
  for (const float weight : {1.0f, 0.0f, 0.0f}) {
    state.set_weight(weight);
    for (size_t i = 0; i < kElements; ++i) values_[i] = static_cast<float>(i % 5);
    const Status status =
        Run({First(0, 3, Behind::kPacket), First(1, 3, Behind::kPacket), Second(0), Second(1)});
    ASSERT_TRUE(status.ok()) << status.text();
    residuals.push_back(residual());
    ++sequence_;
  }
  EXPECT_NE(residuals[0], std::vector<float>(kElements)) << "what signs cannot tell";
  EXPECT_EQ(residuals[1], residuals[0]);
  EXPECT_EQ(residuals[2], residuals[0]);
  EXPECT_EQ(state.epoch(), 3u);
}

// Nobody has written new residuals, so the old ones must stay the current ones.
TEST_F(WeightedWireTest, ARoundWithoutWeightIsNotCommitted) {
  compressor_.compressor.set_weight(0);
  const std::vector<std::byte> zeros(packet_.size());
  const Status status = Run({First(0, 0, Behind::kNothing), First(1, 0, Behind::kNothing),
                             Message(2, 0, zeros), Message(2, 1, zeros)});
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(values_, std::vector<float>(kElements));
  EXPECT_EQ(compressor_.compressor.epoch(), 0u);
  EXPECT_EQ(compressor_.compressor.empty_rounds(), 1u);
}

TEST_F(WeightedWireTest, AWeightNeedsAPacket) {
  ExpectError(Run({First(0, 1, Behind::kNothing)}), Code::kCorrupt, "no packet follows");
}

TEST_F(WeightedWireTest, NoWeightHasNoPacket) {
  ExpectError(Run({First(0, 0, Behind::kPacket)}), Code::kCorrupt, "a packet follows");
}

TEST_F(WeightedWireTest, AllSegmentsHaveOneWeight) {
  ExpectError(Run({First(0, 1, Behind::kPacket), First(1, 2, Behind::kPacket)}), Code::kCorrupt,
              "the weight is 2, but 1 in another message");
}

TEST_F(WeightedWireTest, AMeanIsNeverMissing) {
  ExpectError(Run({First(0, 1, Behind::kPacket), First(1, 1, Behind::kPacket),
                   Message(2, 0, std::vector<std::byte>(kWeightBytes))}),
              Code::kCorrupt, "sent 16 payload bytes for segment 0 of exchange 2, not 12");
}

TEST_F(CompressedWireTest, WithoutWeightsAPacketIsNeverMissing) {
  ScriptedRank rank({});
  PlannedCompressor compressor =
      rank.NewCompressor({.codec = {.kind = CodecKind::kEf, .block = kBlock}, .count = 256});
  std::vector<float> values(256, 1.0f);
  const CallRequest request = RequestOf(values, compressor);
  const ScriptedMessage message =
      testing::MessageOf({.call = DescriptorOf(request, rank.comm()), .has_payload_checksum = true},
                         std::vector<std::byte>(kWeightBytes));
  ExpectError(rank.Run({&request, 1}, {message}), Code::kCorrupt, "sent 16 payload bytes");
}

// A rank's own part of an all-to-all is copied without a packet; the mask and the rule for values
// that are not finite apply to it all the same.
TEST_F(CompressedWireTest, TheOwnPartIsCopiedAsItWouldBeSent) {
  constexpr size_t kPart = 8;
  constexpr uint16_t kOne = 0x3c00, kInfinity = 0x7c00;  // in fp16
  ScriptedRank rank({});
  PlannedCompressor compressor =
      rank.NewCompressor({.codec = {.kind = CodecKind::kSign, .block = kBlock},
                          .count = kPart,
                          .type = kernels::DataType::kF16,
                          .collective = Collective::kAllToAll});
  const uint8_t mask[] = {0b1111'1101, 0xff};
  ASSERT_TRUE(compressor.compressor.SetMask(mask).ok());
  std::vector<uint16_t> input(2 * kPart, kOne), output(2 * kPart);
  const CallRequest request = {.collective = Collective::kAllToAll,
                               .sendbuff = input.data(),
                               .recvbuff = output.data(),
                               .count = kPart,
                               .type = kernels::DataType::kF16,
                               .compressor = &compressor};
  CallDescriptor call = DescriptorOf(request, rank.comm());
  const auto run = [&] {
    const Status status =
        rank.Run({&request, 1}, {MessageOf(call, 1, kPart, false), MessageOf(call, 2, 0, false)});
    EXPECT_TRUE(status.ok()) << status.text();
    ++call.sequence;
  };
  run();
  for (size_t i = 0; i < kPart; ++i) EXPECT_EQ(output[i], i == 1 ? 0 : kOne) << i;
  input[1] = kInfinity;  // masked
  run();
  EXPECT_EQ(compressor.compressor.nonfinite_calls(), 0u);
  input[2] = kInfinity;
  run();
  EXPECT_EQ(compressor.compressor.nonfinite_calls(), 1u);
}

// Two calls of a group in separate batches: the first fails before the second begins.
TEST_F(CompressedWireTest, OnlyACallThatHasBegunCanBeRolledForward) {
  constexpr size_t kElements = 70;
  ScriptedRank rank({.one_exchange_elements = kElements, .group_elements = 0});
  PlannedCompressor begun =
      rank.NewCompressor({.codec = {.kind = CodecKind::kEf, .block = kBlock}, .count = kElements});
  PlannedCompressor other = rank.NewCompressor(
      {.codec = {.kind = CodecKind::kEf, .block = kBlock}, .count = kElements, .tensor_id = 1});
  std::vector<float> values(kElements, 1.0f), others(kElements, 1.0f);
  const CallRequest requests[] = {RequestOf(values, begun), RequestOf(others, other)};
  CallDescriptor call = DescriptorOf(requests[0], rank.comm());
  call.count += 1;
  ExpectError(rank.Run(requests, {MessageOf(call, 1, kElements, false)}), Code::kMismatch,
              "rank 1 made a different call");
  EXPECT_TRUE(begun.compressor.can_roll_forward());
  EXPECT_FALSE(other.compressor.can_roll_forward());
}

}  // namespace
}  // namespace onebit::testing
