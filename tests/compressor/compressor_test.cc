// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Generations, masks and counters of one compressor, without ranks.
#include "compressor/compressor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

Compressor::Config ConfigOf(bool is_transactional) {
  return {.count = 100, .is_transactional = is_transactional, .server_elements = 40};
}

Compressor Make(const Compressor::Config& config) {
  auto compressor = Compressor::Create(config);
  EXPECT_TRUE(compressor.ok()) << compressor.status().text();
  return std::move(compressor).value();
}

void Write(std::byte* residual, float value) { std::memcpy(residual, &value, sizeof(value)); }
float Read(const std::byte* residual) {
  float value;
  std::memcpy(&value, residual, sizeof(value));
  return value;
}

// Writes the last elements as a call would.
void WriteBoth(const Compressor& compressor, float value) {
  Write(compressor.worker_out(99), value);
  Write(compressor.server_out(39), value);
}
void ExpectBoth(const Compressor& compressor, float value) {
  EXPECT_EQ(Read(compressor.worker_in(99)), value);
  EXPECT_EQ(Read(compressor.server_in(39)), value);
}

TEST(CompressorTest, TransactionalCallIsSeenOnlyAfterCommit) {
  Compressor compressor = Make(ConfigOf(true));
  WriteBoth(compressor, 1);
  ExpectBoth(compressor, 0);
  compressor.Commit();
  ExpectBoth(compressor, 1);
  WriteBoth(compressor, 2);
  ExpectBoth(compressor, 1);
  compressor.Commit();
  ExpectBoth(compressor, 2);
  EXPECT_EQ(compressor.epoch(), 2u);
}

TEST(CompressorTest, TransactionalDiscardLosesNothing) {
  Compressor compressor = Make(ConfigOf(true));
  WriteBoth(compressor, 1);
  compressor.Commit();
  WriteBoth(compressor, 2);
  compressor.DiscardFailed();
  ExpectBoth(compressor, 1);
  WriteBoth(compressor, 3);
  compressor.DiscardNonfinite();
  ExpectBoth(compressor, 1);
  EXPECT_EQ(compressor.epoch(), 1u);
  EXPECT_EQ(compressor.nonfinite_calls(), 1u);
  EXPECT_EQ(compressor.residual_resets(), 0u);
}

TEST(CompressorTest, DiscardWithoutASecondGenerationResets) {
  Compressor compressor = Make(ConfigOf(false));
  WriteBoth(compressor, 1);
  compressor.Commit();
  ExpectBoth(compressor, 1);
  WriteBoth(compressor, 2);
  compressor.DiscardFailed();
  ExpectBoth(compressor, 0);
  WriteBoth(compressor, 3);
  compressor.DiscardNonfinite();
  ExpectBoth(compressor, 0);
  EXPECT_EQ(compressor.residual_resets(), 2u);
  EXPECT_EQ(compressor.nonfinite_calls(), 1u);
}

TEST(CompressorTest, ResetZeroesInEveryGenerationAndForgetsTheOp) {
  for (const int commits : {1, 2, 3}) {
    Compressor compressor = Make(ConfigOf(true));
    compressor.set_op(ReduceOp::kSum);
    for (int i = 0; i < commits; ++i) {
      WriteBoth(compressor, 1);
      compressor.Commit();
    }
    compressor.Reset();
    ExpectBoth(compressor, 0);
    EXPECT_FALSE(compressor.op().has_value());
    EXPECT_EQ(compressor.residual_resets(), 1u);
    EXPECT_EQ(compressor.epoch(), static_cast<uint64_t>(commits)) << "commits so far stay counted";
  }
}

// A call that failed here may have been committed elsewhere; a call that met a NaN was not.
TEST(CompressorTest, RollsForwardToACallThatFailedAndToNoOther) {
  Compressor compressor = Make(ConfigOf(true));
  EXPECT_FALSE(compressor.can_roll_forward());
  WriteBoth(compressor, 1);
  compressor.DiscardNonfinite();
  EXPECT_FALSE(compressor.can_roll_forward());
  WriteBoth(compressor, 2);
  compressor.DiscardFailed();
  ASSERT_TRUE(compressor.can_roll_forward());
  compressor.RollForward();
  ExpectBoth(compressor, 2);
  EXPECT_EQ(compressor.epoch(), 1u);
  EXPECT_FALSE(compressor.can_roll_forward());
  EXPECT_TRUE(compressor.lacks_results());
  compressor.DiscardFailed();
  compressor.Commit();  // it was made again
  EXPECT_FALSE(compressor.can_roll_forward());
  EXPECT_FALSE(compressor.lacks_results());
  compressor.DiscardFailed();
  compressor.Reset();
  EXPECT_FALSE(compressor.can_roll_forward());
}

TEST(CompressorTest, OneGenerationCannotRollForward) {
  Compressor compressor = Make(ConfigOf(false));
  compressor.DiscardFailed();
  EXPECT_FALSE(compressor.can_roll_forward());
}

TEST(CompressorTest, AStateIsInForceWhereACallWouldHaveWritten) {
  for (const bool is_transactional : {false, true}) {
    Compressor compressor = Make(ConfigOf(is_transactional));
    compressor.DiscardFailed();
    compressor.RollForward();
    WriteBoth(compressor, 5);
    compressor.Adopt(17, 300, ReduceOp::kAvg);
    ExpectBoth(compressor, 5);
    EXPECT_EQ(compressor.epoch(), 17u);
    EXPECT_EQ(compressor.commits_since_zero(), 300u);
    EXPECT_EQ(compressor.op(), ReduceOp::kAvg);
    EXPECT_FALSE(compressor.lacks_results());
  }
}

// Replicas compare their age: zero residuals differ from all others, whatever their age.
TEST(CompressorTest, AgeIsZeroOnlyOfResidualsThatAreZero) {
  Compressor compressor = Make(ConfigOf(true));
  EXPECT_EQ(compressor.age(), 0);
  for (int call = 1; call <= 600; ++call) {
    compressor.Commit();
    ASSERT_EQ(compressor.age(), 1 + (call - 1) % 255);
  }
  compressor.Reset();
  EXPECT_EQ(compressor.age(), 0);
  compressor.Commit();
  EXPECT_EQ(compressor.age(), 1);
}

TEST(CompressorTest, ResetOfAFreshOneIsNoLoss) {
  Compressor compressor = Make(ConfigOf(true));
  compressor.Reset();
  EXPECT_EQ(compressor.residual_resets(), 0u);
}

TEST(CompressorTest, SignModeHasNoResiduals) {
  Compressor::Config config = ConfigOf(true);
  config.codec.kind = CodecKind::kSign;
  Compressor compressor = Make(config);
  EXPECT_EQ(compressor.worker_in(0), nullptr);
  EXPECT_EQ(compressor.worker_out(0), nullptr);
  EXPECT_EQ(compressor.server_in(0), nullptr);
  EXPECT_EQ(compressor.residual_bytes(), 0u);
  compressor.Commit();
  compressor.DiscardFailed();
  compressor.Reset();
  EXPECT_EQ(compressor.residual_resets(), 0u) << "there was nothing to lose";
  EXPECT_EQ(compressor.epoch(), 1u);
}

TEST(CompressorTest, ServerResidualCanBeLeftOut) {
  Compressor::Config config = ConfigOf(true);
  config.has_server_residual = false;
  const Compressor compressor = Make(config);
  EXPECT_NE(compressor.worker_in(0), nullptr);
  EXPECT_EQ(compressor.server_in(0), nullptr);
  EXPECT_EQ(compressor.server_out(0), nullptr);
  EXPECT_EQ(compressor.residual_bytes(), 2u * 4 * 100);
}

// A null pointer means that the mode has no residual, so an empty tensor's must not be null.
TEST(CompressorTest, EmptyTensorHasResidualPointers) {
  const Compressor compressor = Make({.count = 0, .server_elements = 0});
  EXPECT_NE(compressor.worker_in(0), nullptr);
  EXPECT_NE(compressor.server_out(0), nullptr);
}

TEST(CompressorTest, Bfloat16ResidualsHaveHalfTheSize) {
  Compressor::Config config = ConfigOf(false);
  config.residual_type = kernels::DataType::kBf16;
  const Compressor compressor = Make(config);
  EXPECT_EQ(compressor.residual_bytes(), 2u * 140);
  EXPECT_EQ(compressor.worker_in(50) - compressor.worker_in(0), 100);
}

// In a reduce-scatter with two levels a rank is the worker of some chunks only.
TEST(CompressorTest, ResidualsOfChunksLieOneAfterTheOther) {
  constexpr size_t kChunk = 5;
  const Compressor compressor =
      Make({.count = kChunk,
            .worker_count = 2 * kChunk,
            .worker_places = std::make_shared<const std::vector<uint32_t>>(
                std::vector<uint32_t>{0, Compressor::Config::kElsewhere, 1}),
            .collective = Collective::kReduceScatter,
            .chunks = 3});
  for (size_t i = 0; i < kChunk; ++i) {
    EXPECT_EQ(compressor.WorkerIndex(i), i);
    EXPECT_EQ(compressor.WorkerIndex(2 * kChunk + i), kChunk + i);
    EXPECT_FALSE(compressor.HasWorker(kChunk + i));
  }
}

TEST(CompressorMaskTest, IsCopiedAndUnusedBitsAreCleared) {
  Compressor compressor = Make(ConfigOf(true));
  std::array<uint8_t, 13> mask;
  mask.fill(0xff);
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  mask.fill(0);
  EXPECT_EQ(*compressor.mask(0), 0xff);
  EXPECT_EQ(*compressor.mask(96), 0x0f) << "100 elements use 4 bits of the last byte";
}

TEST(CompressorMaskTest, DigestTellsMasksApart) {
  Compressor compressor = Make(ConfigOf(true));
  EXPECT_EQ(compressor.mask_digest(), 0u);
  std::array<uint8_t, 13> mask = {};
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  const uint32_t none = compressor.mask_digest();
  EXPECT_NE(none, 0u) << "a mask of zeros is a mask";
  mask[0] = 1;
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  const uint32_t first = compressor.mask_digest();
  mask[0] = 0;
  mask[4] = 1;  // the same sum of words
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  EXPECT_NE(compressor.mask_digest(), first);
  EXPECT_NE(first, none);
  mask[12] |= 0xf0;  // unused bits
  const uint32_t before = compressor.mask_digest();
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  EXPECT_EQ(compressor.mask_digest(), before);
  ASSERT_TRUE(compressor.SetMask(nullptr).ok());
  EXPECT_EQ(compressor.mask_digest(), 0u);
  EXPECT_EQ(compressor.mask(0), nullptr);
}

// The mask is given for 15 elements in succession; kernels take a chunk's mask from a byte on.
TEST(CompressorMaskTest, EveryChunkBeginsAtAByte) {
  Compressor compressor = Make({.count = 5, .chunks = 3});
  const std::array<uint8_t, 2> mask = {0b101'10011, 0b1'01100'01};
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  EXPECT_EQ(*compressor.mask(0), 0b10011);
  EXPECT_EQ(*compressor.mask(5), 0b01101);
  EXPECT_EQ(*compressor.mask(10), 0b01100);
  // The digest is that of the given bits, without the one after the last element.
  const std::array<uint8_t, 2> same = {0b101'10011, 0b0'01100'01};
  const uint32_t digest = compressor.mask_digest();
  ASSERT_TRUE(compressor.SetMask(same.data()).ok());
  EXPECT_EQ(compressor.mask_digest(), digest);
  EXPECT_NE(digest, 0u);
}

// Kernels take the mask of a run, which begins at a cut, from a byte on.
TEST(CompressorMaskTest, EveryRunBehindACutBeginsAtAByte) {
  constexpr size_t kCount = 24;
  const auto cuts = Cuts::Create(std::vector<size_t>{3, 12, 16}, kCount).value();
  Compressor compressor = Make({.count = kCount, .cuts = cuts});
  const std::array<uint8_t, kCount / 8> mask = {0b1001'0110, 0b0111'0001, 0b0010'1101};
  ASSERT_TRUE(compressor.SetMask(mask.data()).ok());
  for (const size_t byte_begin : {0, 3, 11, 12, 16}) {
    const size_t end = std::min(byte_begin + 8, cuts->After(byte_begin));
    for (size_t element = byte_begin; element < end; ++element) {
      EXPECT_EQ(*compressor.mask(byte_begin) >> (element - byte_begin) & 1,
                mask[element / 8] >> (element % 8) & 1)
          << "element " << element << " of the byte from " << byte_begin << " on";
    }
  }
}

TEST(CompressorMaskTest, ATensorWithoutElementsHasOne) {
  Compressor compressor = Make({.count = 0, .chunks = 3});
  const uint8_t mask = 0xff;
  ASSERT_TRUE(compressor.SetMask(&mask).ok());
  // Not a value that a compiler knows, for which it would leave out the division.
  const volatile size_t first = 0;
  EXPECT_NE(compressor.mask(first), nullptr);
  EXPECT_NE(compressor.mask_digest(), 0u);
}

}  // namespace
}  // namespace onebit
