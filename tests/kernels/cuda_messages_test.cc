// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA kernels write the same headers as the codec, find the same mistakes in messages, and end
// calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "codec/message_header.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels::cuda {
namespace {

MessageHeader SomeHeader() {
  MessageHeader header;
  header.call.comm_id = 0xDEADBEEF;
  header.call.sequence = 0x2'FFFF'FFFEu;  // a few more calls carry into the upper word
  header.call.collective = Collective::kAllReduce;
  header.call.count = 123456789;
  header.call.tensor_id = 7;
  header.call.codec = {.kind = CodecKind::kEf, .block = 4096};
  header.call.has_server_residual = true;
  header.has_payload_checksum = true;
  header.segment_count = 3;
  header.segment = 1;
  return header;
}

HeaderTemplate TemplateOf(const MessageHeader& header) {
  HeaderBytes bytes;
  EncodeHeader(header, &bytes);
  HeaderTemplate result;
  memcpy(result.bytes, bytes.data(), kHeaderBytes);
  return result;
}

CallMessages MessagesOf(std::initializer_list<MessageRun> runs, uint32_t* faults) {
  CallMessages messages = {.filled = TemplateOf(SomeHeader()),
                           .faults = faults,
                           .run_count = static_cast<uint32_t>(runs.size()),
                           .runs = {}};
  std::ranges::copy(runs, messages.runs);
  return messages;
}

TEST(CudaMessagesTest, SealedHeadersAreThoseOfTheCodec) {
  for (const uint64_t age : {0, 1, 2, 255, 256, 511}) {
    for (const bool is_nonfinite : {false, true}) {
      const uint64_t calls = 5;
      uint32_t faults = is_nonfinite ? uint32_t{kNonfinite} : 0;
      HeaderBytes headers[2];
      std::vector<std::byte> whole(kHeaderBytes + 5'001);
      for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<std::byte>(i * i / 7);
      PayloadSum sum;
      std::byte anywhere[kHeaderBytes + 1];
      SealParams p;
      p.list.count = 1;
      p.list.calls[0] =
          MessagesOf({{.header = headers[0].data(), .stride = kHeaderBytes, .count = 2},
                      {.header = anywhere + 1},
                      {.header = whole.data(), .bytes = whole.size() - kHeaderBytes, .sums = &sum}},
                     &faults);
      p.list.calls[0].filled.sequence = &calls;
      p.list.calls[0].filled.replica_age = &age;
      Launch(Kernel::kSeal, p);

      MessageHeader expected = SomeHeader();
      expected.call.sequence += calls;
      expected.call.replica_age = static_cast<uint8_t>(age == 0 ? 0 : 1 + (age - 1) % 255);
      expected.is_nonfinite = is_nonfinite;
      HeaderBytes bytes;
      EncodeHeader(expected, &bytes);
      EXPECT_EQ(headers[0], bytes);
      EXPECT_EQ(headers[1], bytes);
      EXPECT_EQ(memcmp(anywhere + 1, bytes.data(), kHeaderBytes), 0);
      expected.payload_checksum =
          reference::ChecksumOf(whole.data() + kHeaderBytes, whole.size() - kHeaderBytes);
      EncodeHeader(expected, &bytes);
      EXPECT_EQ(memcmp(whole.data(), bytes.data(), kHeaderBytes), 0);
      const auto decoded = DecodeHeader(std::span(whole).first(kHeaderBytes));
      ASSERT_TRUE(decoded.ok());
      EXPECT_EQ(decoded.value().call, expected.call);
    }
  }
}

// Nothing that follows a failure may look like a result, or like values that are not finite.
TEST(CudaMessagesTest, SealedHeadersTellOfAFailure) {
  for (const uint32_t failed : {uint32_t{kFailed}, uint32_t{kHalted}, uint32_t{kPeerFailed}}) {
    for (uint32_t faults : {failed, failed | kNonfinite}) {
      HeaderBytes header;
      SealParams p;
      p.list.count = 1;
      p.list.calls[0] = MessagesOf({{.header = header.data()}}, &faults);
      Launch(Kernel::kSeal, p);
      MessageHeader expected = SomeHeader();
      expected.has_failed = true;
      HeaderBytes bytes;
      EncodeHeader(expected, &bytes);
      EXPECT_EQ(header, bytes) << "faults " << faults;
    }
  }
}

class CudaCheckTest : public testing::Test {
 protected:
  CudaCheckTest() {
    for (size_t i = 0; i < kMessages; ++i) Send(i, SomeHeader());
    params_.failure = &failure_;
    params_.list.count = 1;
    params_.list.calls[0] = MessagesOf({RunOf(0, 3), RunOf(3, 1), RunOf(4, 1)}, &faults_);
  }

  MessageRun RunOf(uint32_t first, uint32_t count) {
    return {.header = messages_[first].data(),
            .stride = sizeof(messages_[0]),
            .bytes = PayloadOf(first),
            .sums = &sums_[first],
            .peer = 10 + first,
            .count = count};
  }

  // The last message has none.
  static constexpr size_t PayloadOf(size_t i) {
    return i + 1 == kMessages ? 0 : kPayload - (i == 3 ? 12 : 0);
  }

  // Puts a message with this header, but for its checksum, and a good payload into its place.
  void Send(size_t i, MessageHeader header) {
    const std::span payload = std::span(messages_[i]).subspan(kHeaderBytes, PayloadOf(i));
    for (size_t at = 0; at < payload.size(); ++at) {
      payload[at] = static_cast<std::byte>(7 * i + at * at / 5);
    }
    header.payload_checksum = reference::ChecksumOf(payload.data(), payload.size());
    HeaderBytes bytes;
    EncodeHeader(header, &bytes);
    memcpy(messages_[i].data(), bytes.data(), kHeaderBytes);
  }

  void RunCheck() {
    for (PayloadSum& sum : sums_) sum = {};
    Launch(Kernel::kCheck, params_);
  }

  void ExpectFailure(uint32_t peer, FailureKind kind) {
    RunCheck();
    EXPECT_EQ(faults_, kFailed);
    EXPECT_EQ(failure_.state, 2u);
    EXPECT_EQ(failure_.peer, peer);
    EXPECT_EQ(failure_.kind, kind);
    EXPECT_EQ(memcmp(failure_.received, messages_[peer - 10].data(), kHeaderBytes), 0);
  }

  static constexpr size_t kMessages = 5;
  static constexpr size_t kPayload = 9'000;  // several tiles
  std::array<std::byte, kHeaderBytes + kPayload> messages_[kMessages];
  PayloadSum sums_[kMessages];
  CheckParams params_;
  uint32_t faults_ = 0;
  MessageFailure failure_;
};

TEST_F(CudaCheckTest, AcceptsEqualHeaders) {
  RunCheck();
  EXPECT_EQ(faults_, 0u);
  EXPECT_EQ(failure_.state, 0u);
}

TEST_F(CudaCheckTest, PassesOnThatAValueIsNotFinite) {
  MessageHeader header = SomeHeader();
  header.is_nonfinite = true;
  Send(3, header);
  RunCheck();
  EXPECT_EQ(faults_, kNonfinite);
  EXPECT_EQ(failure_.state, 0u);
}

// A call without faults has no such flag.
TEST_F(CudaCheckTest, RefusesTheFlagWhereItHasNoMeaning) {
  params_.list.calls[0].has_verdict = false;
  RunCheck();
  EXPECT_EQ(faults_, 0u);
  MessageHeader header = SomeHeader();
  header.is_nonfinite = true;
  Send(3, header);
  ExpectFailure(13, kFlagUnfit);
}

TEST_F(CudaCheckTest, TellsWhichPeerHadAFailure) {
  MessageHeader header = SomeHeader();
  header.has_failed = true;
  header.call.replica_age += 1;  // a value that the peer did not commit
  Send(3, header);
  RunCheck();
  EXPECT_EQ(faults_, kPeerFailed);
  EXPECT_EQ(failure_.state, 2u);
  EXPECT_EQ(failure_.peer, 13u);
  EXPECT_EQ(failure_.kind, kHasFailed);
}

TEST_F(CudaCheckTest, AFailureOfAPeerIsNoOtherCall) {
  MessageHeader header = SomeHeader();
  header.has_failed = true;
  header.call.count += 1;
  Send(3, header);
  ExpectFailure(13, kHeaderDiffers);
}

TEST_F(CudaCheckTest, ExpectsTheSequenceAndTheAgeOfTheDevice) {
  const uint64_t calls = 3, age = 9;
  params_.list.calls[0].filled.sequence = &calls;
  params_.list.calls[0].filled.replica_age = &age;
  MessageHeader header = SomeHeader();
  header.call.sequence += calls;
  header.call.replica_age = 9;
  for (size_t i = 0; i < kMessages; ++i) Send(i, header);
  RunCheck();
  EXPECT_EQ(faults_, 0u);
  // The expected header can be decoded.
  header.call.sequence += 1;
  Send(1, header);
  ExpectFailure(11, kHeaderDiffers);
  const auto expected =
      DecodeHeader(std::as_bytes(std::span<const uint8_t>(failure_.expected, kHeaderBytes)));
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(DescribeDifference(expected.value().call, header.call),
            "call number 12884901889 here, 12884901890 there");
}

// A rank whose last call failed has another age than ranks that committed it. Nobody commits this
// one.
TEST_F(CudaCheckTest, ComparesNoAgeOfACallThatNobodyCommits) {
  MessageHeader header = SomeHeader();
  header.call.replica_age += 1;
  Send(2, header);
  ExpectFailure(12, kHeaderDiffers);
  faults_ = 0;
  failure_ = {};
  header.is_nonfinite = true;
  Send(2, header);
  RunCheck();
  EXPECT_EQ(faults_, kNonfinite);
  EXPECT_EQ(failure_.state, 0u);
}

TEST_F(CudaCheckTest, SeesEveryByteThatDiffers) {
  for (size_t byte = 0; byte < kHeaderBytes; ++byte) {
    faults_ = 0;
    failure_ = {};
    Send(3, SomeHeader());
    messages_[3][byte] ^= std::byte{0x10};
    // Flags and sums are not compared, but the header's checksum covers them.
    ExpectFailure(13, kHeaderDiffers);
  }
}

TEST_F(CudaCheckTest, SeesAnotherCall) {
  MessageHeader header = SomeHeader();
  header.call.count += 1;
  Send(0, header);
  ExpectFailure(10, kHeaderDiffers);
}

TEST_F(CudaCheckTest, SeesADamagedPayload) {
  for (const size_t at : {size_t{0}, kPayload / 2, PayloadOf(3) - 1}) {
    faults_ = 0;
    failure_ = {};
    Send(3, SomeHeader());
    const std::byte* const payload = messages_[3].data() + kHeaderBytes;
    const Checksum expected = reference::ChecksumOf(payload, PayloadOf(3));
    messages_[3][kHeaderBytes + at] ^= std::byte{4};
    ExpectFailure(13, kPayloadDiffers);
    EXPECT_EQ(failure_.expected_checksum, expected);
    EXPECT_EQ(failure_.checksum, reference::ChecksumOf(payload, PayloadOf(3)));
  }
}

// The sum of the words is the same.
TEST_F(CudaCheckTest, SeesWordsThatChangedPlaces) {
  std::byte* const payload = messages_[3].data() + kHeaderBytes;
  ASSERT_NE(memcmp(payload, payload + 4096, 4), 0);
  std::swap_ranges(payload, payload + 4, payload + 4096);
  ExpectFailure(13, kPayloadDiffers);
  EXPECT_EQ(failure_.checksum.sum, failure_.expected_checksum.sum);
}

TEST_F(CudaCheckTest, KeepsTheFirstFailure) {
  messages_[1][40] ^= std::byte{1};
  ExpectFailure(11, kHeaderDiffers);
  Send(1, SomeHeader());
  messages_[2][40] ^= std::byte{1};
  RunCheck();
  EXPECT_EQ(failure_.peer, 11u);
  EXPECT_EQ(faults_, kFailed);
}

TEST(CudaMessagesTest, ChecksumsOfManySpansEqualTheOracle) {
  Random random{5};
  for (int repetition = 0; repetition < Repetitions(30); ++repetition) {
    Bytes bytes(200000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    std::vector<Checksum> checksums(kMaxSpans), expected(kMaxSpans);
    ChecksumParams p;
    p.count = random() % (kMaxSpans + 1);
    for (uint32_t i = 0; i < p.count; ++i) {
      const size_t begin = 4 * (random() % 1000);
      const size_t count = random() % 3 == 0 ? random() % 40 : random() % (bytes.size() - begin);
      p.spans[i] = {reinterpret_cast<const std::byte*>(bytes.data() + begin), count, &checksums[i]};
      expected[i] = reference::ChecksumOf(bytes.data() + begin, count);
    }
    Launch(Kernel::kChecksum, p);
    EXPECT_EQ(checksums, expected);
  }
}

TEST(CudaMessagesTest, FillsSpansIfTheConditionHolds) {
  constexpr FillValue kValues[] = {FillValue::kZeroBytes, FillValue::kNanF32, FillValue::kNanF16,
                                   FillValue::kNanBf16};
  constexpr size_t kElementBytes[] = {1, 4, 2, 2};
  constexpr uint32_t kElements[] = {0, 0x7FC00000u, 0x7E00u, 0x7FC0u};
  GuardedMemory memory(100000);
  for (size_t v = 0; v < 4; ++v) {
    for (const size_t count : {0, 1, 2, 3, 15, 16, 17, 33, 4099, 20001}) {
      for (size_t offset = 0; offset < 20; ++offset) {
        const size_t element = kElementBytes[v];
        const size_t bytes = (offset + count) * element;
        uint8_t* const at =
            memory.Place(Bytes(bytes, 0xEE), offset % 2 == 0 ? Edge::kHigh : Edge::kLow);
        uint32_t condition = 0, decision = 0;
        FillParams p;
        p.count = 2;
        p.spans[1] = {.data = at + offset * element,
                      .count = count,
                      .condition = &condition,
                      .decision = &decision,
                      .value = kValues[v]};
        Launch(Kernel::kFillIf, p);
        EXPECT_EQ(Bytes(at, at + bytes), Bytes(bytes, 0xEE)) << "without its condition";
        (offset % 2 == 0 ? condition : decision) = kFailed;
        if (offset % 3 == 0) p.spans[1].condition = nullptr;
        Launch(Kernel::kFillIf, p);
        Bytes expected(bytes, 0xEE);
        for (size_t i = 0; i < count; ++i) {
          memcpy(expected.data() + (offset + i) * element, &kElements[v], element);
        }
        EXPECT_EQ(Bytes(at, at + bytes), expected) << "value " << v << " count " << count;
      }
    }
  }
}

CommitParams CommitOf(CompressorWords* words, bool has_two_generations, uint64_t* sequence,
                      uint32_t* faults) {
  CommitParams p;
  p.count = 1;
  p.calls[0] = {.words = words,
                .sequence = sequence,
                .has_two_generations = has_two_generations,
                .faults = faults};
  return p;
}

TEST(CudaCommitTest, GoodCallMakesTheOtherGenerationCurrent) {
  CompressorWords words;
  uint64_t sequence = 41;
  uint32_t faults = 0;
  const CommitParams p = CommitOf(&words, true, &sequence, &faults);
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.current, 1u | kHasPrevious);
  EXPECT_EQ(words.epoch, 1u);
  EXPECT_EQ(words.age, 1u);
  EXPECT_EQ(sequence, 42u);
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.current, 0u | kHasPrevious);
  EXPECT_EQ(words.epoch, 2u);
  EXPECT_EQ(words.nonfinite_calls + words.residual_resets, 0u);
}

TEST(CudaCommitTest, NonfiniteCallKeepsTheGeneration) {
  CompressorWords words = {.current = 1 | kHasPrevious, .epoch = 5, .age = 4};
  uint64_t sequence = 0;
  uint32_t faults = kNonfinite;
  const CommitParams p = CommitOf(&words, true, &sequence, &faults);
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.current, 1u);
  EXPECT_EQ(words.epoch, 5u);
  EXPECT_EQ(words.age, 4u);
  EXPECT_EQ(words.nonfinite_calls, 1u);
  EXPECT_EQ(words.residual_resets, 0u);
  EXPECT_EQ(sequence, 1u);
  EXPECT_EQ(faults, 0u);
}

TEST(CudaCommitTest, ARankAloneCommitsNothingAndCountsNonfiniteCalls) {
  CompressorWords words = {.epoch = 5, .age = 4};
  uint32_t faults = 0;
  CommitParams p = CommitOf(&words, true, nullptr, &faults);
  p.calls[0].is_alone = true;
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.current, 0u);
  EXPECT_EQ(words.epoch, 5u);
  EXPECT_EQ(words.age, 4u);
  faults = kNonfinite;
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.nonfinite_calls, 1u);
}

TEST(CudaCommitTest, OneGenerationIsResetByANonfiniteCall) {
  CompressorWords words = {.epoch = 5, .age = 4};
  uint32_t faults = 0;
  const CommitParams p = CommitOf(&words, false, nullptr, &faults);
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.current, 0u);
  EXPECT_EQ(words.epoch, 6u);
  faults = kNonfinite;
  Launch(Kernel::kCommit, p);
  EXPECT_EQ(words.age, 0u);
  EXPECT_EQ(words.residual_resets, 1u);
  EXPECT_EQ(words.epoch, 6u);
}

TEST(CudaCommitTest, FailedCallChangesNothing) {
  for (const uint32_t failed : {uint32_t{kFailed}, uint32_t{kFailed | kNonfinite},
                                uint32_t{kPeerFailed}, uint32_t{kPeerFailed | kNonfinite}}) {
    CompressorWords words = {.current = 1, .epoch = 5, .age = 4};
    uint64_t sequence = 7;
    uint32_t faults = failed;
    uint32_t ever_failed = 0;
    CommitParams p = CommitOf(&words, true, &sequence, &faults);
    p.halted = &ever_failed;
    Launch(Kernel::kCommit, p);
    EXPECT_EQ(ever_failed, kHalted);
    EXPECT_EQ(words.has_failed, 1u);
    EXPECT_EQ(words.current, 1u);
    EXPECT_EQ(words.epoch, 5u);
    EXPECT_EQ(words.age, 4u);
    EXPECT_EQ(words.nonfinite_calls + words.residual_resets, 0u);
    EXPECT_EQ(sequence, 8u);
    EXPECT_EQ(faults, 0u);
  }
}

// A halted call has written nothing; residuals written by the failed call before it are still
// there.
TEST(CudaCommitTest, HaltedCallIsNotTheOneThatFailed) {
  for (const uint32_t halted : {uint32_t{kHalted}, uint32_t{kHalted | kNonfinite},
                                uint32_t{kHalted | kFailed}, uint32_t{kHalted | kPeerFailed}}) {
    CompressorWords words = {.current = 1, .epoch = 5, .age = 4};
    uint64_t sequence = 7;
    uint64_t nonfinite_calls = 0;
    uint32_t faults = halted;
    uint32_t ever_halted = kHalted;
    CommitParams p = CommitOf(&words, true, &sequence, &faults);
    p.halted = &ever_halted;
    p.nonfinite_calls = &nonfinite_calls;
    Launch(Kernel::kCommit, p);
    EXPECT_EQ(words.has_failed, 0u);
    EXPECT_EQ(words.current, 1u);
    EXPECT_EQ(words.epoch, 5u);
    EXPECT_EQ(ever_halted, kHalted);
    EXPECT_EQ(nonfinite_calls + words.nonfinite_calls, 0u);
    EXPECT_EQ(sequence, 8u);
  }
}

TEST(CudaCommitTest, NonfiniteCallsOfTheCommunicatorAreCounted) {
  CompressorWords words;
  uint64_t nonfinite_calls = 2;
  for (uint32_t faults : {uint32_t{0}, uint32_t{kNonfinite}, uint32_t{kFailed | kNonfinite}}) {
    CommitParams p = CommitOf(&words, true, nullptr, &faults);
    p.nonfinite_calls = &nonfinite_calls;
    Launch(Kernel::kCommit, p);
  }
  EXPECT_EQ(nonfinite_calls, 3u);
}

}  // namespace
}  // namespace onebit::kernels::cuda
