// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls that share a launch keep to themselves: each has its own faults, decision and residuals.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "codec/message_header.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels::cuda {
namespace {

constexpr size_t kCount = 3 * 4096 + 77;
constexpr size_t kBlock = 4096;

// A call with error feedback, all of which is one piece.
struct SharedCall {
  explicit SharedCall(Random& random, bool is_second_current) : current(is_second_current ? 1 : 0) {
    for (float& value : values) value = RandomF32(Numbers::kOrdinary, random);
    for (float& value : residual) value = RandomF32(Numbers::kOrdinary, random);
    for (float& scale : scales) scale = std::abs(RandomF32(Numbers::kOrdinary, random));
    for (uint8_t& byte : bits) byte = static_cast<uint8_t>(random());
    written.fill(-7);
  }

  // `packet` is what the server receives.
  Piece PieceOf(const std::byte* packet) {
    Piece piece;
    piece.count = kCount;
    piece.values = values.data();
    piece.scales = scales.data();
    piece.bits = bits.data();
    piece.residuals[current] = residual.data();
    piece.residuals[1 - current] = written.data();
    piece.current = &current;
    piece.faults = &faults;
    piece.decision = &decision;
    piece.source = piece.own_source = packet;
    piece.source_bits = scales.size() * sizeof(float);
    return piece;
  }

  uint32_t current;
  uint32_t faults = 0;
  uint32_t decision = 0;
  std::array<float, kCount> values, residual, written;
  std::array<float, (kCount + kBlock - 1) / kBlock> scales;
  std::array<uint8_t, (kCount + 7) / 8> bits;
};
constexpr size_t kPacketBytes = (sizeof(SharedCall::scales) + sizeof(SharedCall::bits) + 3) / 4 * 4;

// Five calls: good ones around one that an earlier failure has halted, one that the host has given
// up, and one with a value that is not finite.
class CudaSharedLaunchTest : public testing::Test {
 protected:
  static constexpr size_t kCalls = 5;

  CudaSharedLaunchTest() {
    for (size_t i = 0; i < kCalls; ++i) calls_.emplace_back(random_, i % 2 == 1);
    calls_[1].faults = kHalted;
    calls_[2].decision = kPeerFailed;
    for (size_t i = 0; i < kCalls; ++i) {
      memcpy(Packet(i), calls_[i].scales.data(), sizeof(SharedCall::scales));
      memcpy(Packet(i) + sizeof(SharedCall::scales), calls_[i].bits.data(), calls_[i].bits.size());
    }
  }

  std::byte* Packet(size_t call) { return packets_.data() + call * kPacketBytes; }

  PieceList ListOf(size_t tile_elements) {
    PieceList list;
    for (size_t i = 0; i < kCalls; ++i) {
      Piece piece = calls_[i].PieceOf(Packet(i));
      piece.first_tile = list.tiles;
      piece.scale = list.count;
      list.tiles += static_cast<uint32_t>(BlockCount(kCount, tile_elements));
      list.pieces[list.count++] = piece;
    }
    return list;
  }

  // Launches a kernel for each call alone, on copies, and compares what they wrote.
  template <class Params>
  void ExpectAsAlone(Kernel kernel, Params params, size_t tile_elements) {
    const std::vector<SharedCall> before = calls_;
    params.list = ListOf(tile_elements);
    Launch(kernel, params);
    const std::vector<SharedCall> shared = std::exchange(calls_, before);
    const PieceList list = ListOf(tile_elements);
    for (size_t i = 0; i < kCalls; ++i) {
      Params one = params;
      one.list.count = 1;
      one.list.pieces[0] = list.pieces[i];
      one.list.pieces[0].first_tile = 0;
      one.list.tiles = list.tiles / kCalls;
      Launch(kernel, one);
      EXPECT_EQ(shared[i].faults, calls_[i].faults) << i;
      if ((calls_[i].faults & kNonfinite) != 0) continue;  // the rest is unspecified
      EXPECT_EQ(shared[i].values, calls_[i].values) << i;
      EXPECT_EQ(shared[i].scales, calls_[i].scales) << i;
      EXPECT_EQ(shared[i].bits, calls_[i].bits) << i;
      EXPECT_EQ(shared[i].residual, calls_[i].residual) << i;
      EXPECT_EQ(shared[i].written, calls_[i].written) << i;
    }
    std::array<float, kCount> untouched;
    untouched.fill(-7);
    for (size_t i = 0; i < kCalls; ++i) {
      const bool is_halted = i == 1 || i == 2;
      EXPECT_EQ(shared[i].written == untouched, is_halted) << i;
    }
  }

  Random random_{77};
  std::vector<SharedCall> calls_;
  std::vector<std::byte> packets_ = std::vector<std::byte>(kCalls * kPacketBytes);
};

TEST_F(CudaSharedLaunchTest, CompressesEachCallAsAlone) {
  calls_[4].values[4097] = INFINITY;
  calls_[4].residual.fill(1);
  CompressParams params;
  params.block = kBlock;
  ExpectAsAlone(Kernel::kCompressBlocks, params, kBlock);
  EXPECT_EQ(calls_[0].faults, 0u);
  EXPECT_EQ(calls_[1].faults, kHalted);
  EXPECT_EQ(calls_[3].faults, 0u);
  EXPECT_EQ(calls_[4].faults, kNonfinite);
}

TEST_F(CudaSharedLaunchTest, ReducesEachCallAsAlone) {
  const float nan = NAN;
  memcpy(Packet(4) + sizeof(float), &nan, sizeof(nan));
  ReduceParams params;
  params.block = kBlock;
  ExpectAsAlone(Kernel::kReduceBlocks, params, kBlock);
  EXPECT_EQ(calls_[3].faults, 0u);
  EXPECT_EQ(calls_[4].faults, kNonfinite);
}

TEST_F(CudaSharedLaunchTest, AddsTheDeltaOfEachCallAsAlone) {
  calls_[4].scales[1] = INFINITY;
  DecodeParams params;
  params.block = kBlock;
  ExpectAsAlone(Kernel::kAddDelta, params, kTensorSumBlock);
  EXPECT_EQ(calls_[3].faults, 0u);
  EXPECT_EQ(calls_[4].faults, kNonfinite);
}

TEST(CudaSharedMessagesTest, HeadersAreThoseOfTheirCalls) {
  constexpr size_t kCalls = 35;  // more than a short list
  constexpr size_t kMessages = 2 * kCalls;
  std::vector<std::array<std::byte, kHeaderBytes + 4000>> messages(kMessages);
  std::vector<PayloadSum> sums(kMessages);
  uint32_t faults[3] = {0, kNonfinite, kFailed};
  HeaderTemplate templates[3];
  MessageHeader headers[3];
  for (uint32_t c = 0; c < 3; ++c) {
    headers[c].call.sequence = 10 + c;
    headers[c].call.count = 1000 * c;
    headers[c].has_payload_checksum = true;
    HeaderBytes bytes;
    EncodeHeader(headers[c], &bytes);
    memcpy(templates[c].bytes, bytes.data(), kHeaderBytes);
  }
  SealParams seal;
  for (size_t i = 0; i < kMessages; ++i) {
    for (size_t at = 0; at < 4000; ++at) {
      messages[i][kHeaderBytes + at] = static_cast<std::byte>(at * at / 3 + i);
    }
  }
  seal.list.count = kCalls;
  for (uint32_t c = 0; c < kCalls; ++c) {
    seal.list.calls[c] = {.filled = templates[c % 3],
                          .faults = &faults[c % 3],
                          .run_count = 1,
                          .runs = {{.header = messages[2 * c].data(),
                                    .stride = sizeof(messages[0]),
                                    .bytes = 4000 - 4 * c,
                                    .sums = &sums[2 * c],
                                    .count = 2}}};
  }
  Launch(Kernel::kSeal, seal);
  for (size_t i = 0; i < kMessages; ++i) {
    const size_t c = i / 2;
    MessageHeader expected = headers[c % 3];
    expected.is_nonfinite = c % 3 == 1;
    expected.has_failed = c % 3 == 2;
    expected.payload_checksum =
        reference::ChecksumOf(messages[i].data() + kHeaderBytes, 4000 - 4 * c);
    HeaderBytes bytes;
    EncodeHeader(expected, &bytes);
    EXPECT_EQ(memcmp(messages[i].data(), bytes.data(), kHeaderBytes), 0) << i;
  }

  // The receiver's calls learn of what their own messages say, and of nothing else.
  MessageFailure failure;
  CheckParams check;
  check.failure = &failure;
  check.list = seal.list;
  uint32_t received[3] = {0, 0, 0};
  for (size_t c = 0; c < kCalls; ++c) check.list.calls[c].faults = &received[c % 3];
  for (PayloadSum& sum : sums) sum = {};
  messages[60][kHeaderBytes + 5] ^= std::byte{1};  // of the first call
  Launch(Kernel::kCheck, check);
  EXPECT_EQ(received[0], kFailed);
  EXPECT_EQ(received[1], kNonfinite);
  EXPECT_EQ(received[2], kPeerFailed);
}

TEST(CudaSharedFillTest, SpansHaveConditionsAndValuesOfTheirOwn) {
  constexpr size_t kSpans = 100;
  std::vector<std::array<uint32_t, 600>> memory(kSpans);
  for (auto& words : memory) words.fill(1);
  uint32_t clear = 0, failed = kFailed;
  FillParams params;
  params.count = kSpans;
  for (uint32_t i = 0; i < kSpans; ++i) {
    const bool is_nan = i % 5 != 0;
    params.spans[i] = {.data = memory[i].data(),
                       .count = is_nan ? 600u : 2400u,
                       .condition = i % 2 == 0 ? &failed : &clear,
                       .decision = i % 3 == 0   ? &failed
                                   : i % 3 == 1 ? &clear
                                                : nullptr,
                       .value = is_nan ? FillValue::kNanF32 : FillValue::kZeroBytes};
  }
  Launch(Kernel::kFillIf, params);
  for (uint32_t i = 0; i < kSpans; ++i) {
    const uint32_t filled = i % 5 != 0 ? 0x7FC00000u : 0;
    const uint32_t expected = i % 2 == 0 || i % 3 == 0 ? filled : 1;
    for (const uint32_t word : memory[i]) ASSERT_EQ(word, expected) << i;
  }
}

TEST(CudaSharedCommitTest, CallsEndEachByItsOwnFaults) {
  const uint32_t kFaults[] = {0, kNonfinite, kFailed, kHalted, kHalted | kNonfinite};
  for (const uint32_t count : {1u, 5u, kFewPieces, kFewPieces + 1, kMaxPieces}) {
    std::vector<CompressorWords> words(count);
    std::vector<uint32_t> faults(count), decisions(count);
    uint64_t sequences[2] = {3, 70}, nonfinite_calls = 1, nonfinite_expected = 1;
    uint32_t halted = 0;
    CommitParams params;
    params.nonfinite_calls = &nonfinite_calls;
    params.halted = &halted;
    params.count = count;
    for (uint32_t i = 0; i < count; ++i) {
      (i % 2 == 0 ? faults : decisions)[i] = kFaults[i % 5];
      if (kFaults[i % 5] == kNonfinite) ++nonfinite_expected;
      params.calls[i] = {.words = &words[i],
                         .sequence = i % 3 == 2 ? nullptr : &sequences[i % 3],
                         .has_two_generations = true,
                         .faults = &faults[i],
                         .decision = &decisions[i]};
    }
    Launch(Kernel::kCommit, params);
    EXPECT_EQ(sequences[0], 3u + (count + 2) / 3);
    EXPECT_EQ(sequences[1], 70u + (count + 1) / 3);
    EXPECT_EQ(nonfinite_calls, nonfinite_expected);
    EXPECT_EQ(halted, count > 2 ? uint32_t{kHalted} : 0u);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t found = kFaults[i % 5];
      EXPECT_EQ(words[i].epoch, found == 0 ? 1u : 0u) << i;
      EXPECT_EQ(words[i].current, found == 0 ? 1u | kHasPrevious : 0u) << i;
      EXPECT_EQ(words[i].nonfinite_calls, found == kNonfinite ? 1u : 0u) << i;
      EXPECT_EQ(words[i].has_failed, found == kFailed ? 1u : 0u) << i;
      EXPECT_EQ(faults[i], 0u) << i;
    }
  }
}

}  // namespace
}  // namespace onebit::kernels::cuda
