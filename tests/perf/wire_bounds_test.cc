// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The formula of bytes on the wire against sums worked out by hand.
#include "perf/common/wire_bounds.h"

#include <gtest/gtest.h>

#include "perf/common/chunks_wire.h"

namespace onebit::perf {
namespace {

// Two chunks of 64 elements, the second of which has 36: 8 + 4 and 5 + 4 bytes.
TEST(WireTest, TwoExchangesSendThePeersChunkAndTheOwn) {
  const WireShape shape{.count = 100, .ranks = 2};
  EXPECT_EQ(CompressedWireBytes(shape, 0), (64u + 9) + (64 + 12));
  EXPECT_EQ(CompressedWireBytes(shape, 1), (64u + 12) + (64 + 9));
}

// Chunks of 64, 36, 0 and 0: rank 3 sends two headers alone less than it sends with chunks.
TEST(WireTest, EmptyChunksAreHeadersAlone) {
  const WireShape shape{.count = 100, .ranks = 4};
  EXPECT_EQ(CompressedWireBytes(shape, 0), 6 * 64u + (9 + 0 + 0) + 3 * 12);
  EXPECT_EQ(CompressedWireBytes(shape, 3), 6 * 64u + (12 + 9 + 0) + 3 * 0);
  EXPECT_EQ(MaxCompressedWireBytes(shape), CompressedWireBytes(shape, 0));
}

TEST(WireTest, ScalesAreOnePerBlockAndSegmentsAddHeaders) {
  // Chunks of 10000 elements are rounded up to 10048: 10048 and 9952.
  WireShape shape{.count = 20000, .ranks = 2, .packet = {.block = 4096}};
  const uint64_t one_segment = 2 * 64 + (12 + 1256) + (12 + 1244);
  EXPECT_EQ(CompressedWireBytes(shape, 1), one_segment);
  shape.segments = 3;
  EXPECT_EQ(CompressedWireBytes(shape, 1), one_segment + 2 * 2 * 64);
  shape.segments = 1;
  shape.packet.block = 0;
  EXPECT_EQ(CompressedWireBytes(shape, 1), one_segment - 2 * 2 * 4);
}

TEST(WireTest, OneExchangeSendsTheWholePacketToAll) {
  WireShape shape{.count = 100, .ranks = 4, .exchanges = 1};
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(CompressedWireBytes(shape, rank), 3 * (64u + 12 + 9));
  }
  shape.packet.block = 0;  // one scale for all chunks
  EXPECT_EQ(MaxCompressedWireBytes(shape), 3 * (64u + 4 + 13));
  shape.count = 0;
  EXPECT_EQ(MaxCompressedWireBytes(shape), 3 * 64u);
}

TEST(WireTest, DenseSendsElements) {
  const WireShape shape{.count = 100, .ranks = 2};
  EXPECT_EQ(DenseWireBytes(shape, 4, 0), 2 * 64u + 36 * 4 + 64 * 4);
  EXPECT_EQ(MaxDenseWireBytes(shape, 2), 2 * 64u + 100 * 2);
}

constexpr PacketRule kFp4 = {
    .block = 128, .element_bits = 4, .scale_bytes = 2, .code_alignment = 16, .has_verdicts = false};

// Chunks of 384 and 316 elements: three scales each in 16 bytes, and 192 and 158 bytes of codes.
TEST(WireTest, LowBitScalesArePaddedTo16Bytes) {
  WireShape shape{.count = 700, .ranks = 2, .packet = kFp4};
  EXPECT_EQ(CompressedWireBytes(shape, 0), 2 * 64u + (16 + 192) + (16 + 158));
  shape.packet.block = 32;  // 12 and 10 scales
  EXPECT_EQ(CompressedWireBytes(shape, 0), 2 * 64u + (32 + 192) + (32 + 158));
  shape.exchanges = 1;  // 22 scales in one packet
  EXPECT_EQ(CompressedWireBytes(shape, 0), 64u + 48 + 350);
  shape.packet.scale_bytes = 4;  // a minimum for each
  EXPECT_EQ(CompressedWireBytes(shape, 0), 64u + 96 + 350);
}

// Chunks of 1280 and 1220 elements in segments of 5 blocks: 10 bytes of scales in 16, twice.
TEST(WireTest, EverySegmentIsPadded) {
  const WireShape shape{.count = 2500, .ranks = 2, .packet = kFp4, .segments = 2};
  EXPECT_EQ(CompressedWireBytes(shape, 0), 4 * 64u + (2 * 16 + 640) + (2 * 16 + 610));
}

// Planned are 4 segments of 5 elements more than 3 blocks, which are 3 of 4 blocks.
TEST(WireTest, RoundingToBlocksMayMakeFewerSegments) {
  EXPECT_EQ(kFp4.SegmentedBytes(12 * 128, 12 * 128, 3), 3u * (16 + 256));
  EXPECT_EQ(kFp4.SegmentedBytes(10 * 128, 10 * 128, 4), 3u * (16 + 192) + (16 + 64));
}

TEST(WireTest, PartsHaveVerdictsWithFeedbackOnly) {
  ChunksWire wire{.count = 1000, .ranks = 3, .packet = kFp4};
  EXPECT_EQ(CompressedChunksBytes(wire), 2 * (64u + 16 + 500));
  wire.packet.has_verdicts = true;
  EXPECT_EQ(CompressedChunksBytes(wire), 2 * (2 * 64u + 16 + 500));
}

constexpr PacketRule kTopk = {.block = 320,
                              .element_bits = 2,
                              .scale_bytes = 4,
                              .code_alignment = 16,
                              .has_verdicts = false,
                              .sent_of_block = 5,
                              .index_bits = 12};

// 5 + ceil(5 * 180 / 320) of 500 elements.
TEST(WireTest, SparsePacketsHaveASharePerBlock) {
  EXPECT_EQ(kTopk.SentOf(0), 0u);
  EXPECT_EQ(kTopk.SentOf(1), 1u);
  EXPECT_EQ(kTopk.SentOf(500), 8u);
  EXPECT_EQ(kTopk.Bytes(500), 16u + 16 + 2);
  EXPECT_EQ(kTopk.Bytes(0), 0u);
}

// With two hops chunks of 384 and 316 elements, of which 6 and 5 are sent; with one hop 700, of
// which 11 are.
TEST(WireTest, OneHopSendsTheTensorToAll) {
  WireShape shape{.count = 700, .ranks = 2, .packet = kTopk};
  EXPECT_EQ(CompressedWireBytes(shape, 0), (64u + 16 + 16 + 2) + (64 + 16 + 16 + 2));
  shape.exchanges = 1;
  EXPECT_EQ(CompressedWireBytes(shape, 0), 64u + 16 + 32 + 3);
  shape.ranks = 4;
  shape.segments = 2;  // of 640 elements, because whole blocks are 384 and more, and of 60
  EXPECT_EQ(CompressedWireBytes(shape, 0), 3 * (2 * 64u + (16 + 16 + 3) + (16 + 16 + 1)));
}

TEST(WireTest, NothingIsSentAlone) {
  EXPECT_EQ(MaxCompressedWireBytes({.count = 1000, .ranks = 1}), 0u);
  EXPECT_EQ(MaxCompressedWireBytes({.count = 1000, .ranks = 1, .exchanges = 1}), 0u);
  EXPECT_EQ(MaxDenseWireBytes({.count = 1000, .ranks = 1}, 4), 0u);
}

}  // namespace
}  // namespace onebit::perf
