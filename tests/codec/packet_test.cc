// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packets: the bytes of the format, and the rejection of everything else.
#include "codec/packet.h"

#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

// 70 elements in blocks of 64: two scales, 9 bytes of bits of which the last uses 6.
class PacketTest : public ::testing::Test {
 protected:
  PacketTest() : packet_(shape_.bytes(), std::byte{0x2a}) {
    SetScale(0, 1.5f);
    SetScale(1, 0.0f);
  }

  void SetScale(size_t index, float value) {
    std::memcpy(packet_.data() + index * sizeof(float), &value, sizeof(value));
  }

  Status CheckWithRightChecksum(bool is_nonfinite = false) const {
    return CheckPacket(packet_, shape_, is_nonfinite,
                       kernels::reference::ChecksumOf(packet_.data(), packet_.size()));
  }

  const PacketShape shape_ = ShapeOf(70, 64);
  std::vector<std::byte> packet_;
};

TEST_F(PacketTest, HasTheBytesOfTheFormat) {
  EXPECT_EQ(shape_.bytes(), 2 * 4 + 9u);
  EXPECT_EQ(ShapeOf(0, 64).bytes(), 0u);
  EXPECT_EQ(ShapeOf(0, 0).bytes(), 0u);
  EXPECT_EQ(ShapeOf(1, 0).bytes(), 5u);
  EXPECT_EQ(ShapeOf(65'536, 4096).bytes(), 16 * 4 + 8192u);
}

TEST_F(PacketTest, AcceptsAGoodPacket) { EXPECT_TRUE(CheckWithRightChecksum().ok()); }

TEST_F(PacketTest, RejectsEveryFlippedBit) {
  const auto checksum = kernels::reference::ChecksumOf(packet_.data(), packet_.size());
  for (size_t bit = 0; bit < 8 * packet_.size(); ++bit) {
    auto damaged = packet_;
    damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(CheckPacket(damaged, shape_, false, checksum).code(), Code::kCorrupt) << bit;
  }
}

TEST_F(PacketTest, RejectsSwappedWords) {
  const auto checksum = kernels::reference::ChecksumOf(packet_.data(), packet_.size());
  std::swap_ranges(packet_.begin(), packet_.begin() + 4, packet_.begin() + 4);
  EXPECT_EQ(CheckPacket(packet_, shape_, false, checksum).code(), Code::kCorrupt);
}

TEST_F(PacketTest, RejectsAnotherLength) {
  packet_.pop_back();
  EXPECT_EQ(CheckWithRightChecksum().text(), "payload has 16 bytes, 17 were expected");
  packet_.resize(18);
  EXPECT_EQ(CheckWithRightChecksum().text(), "payload has 18 bytes, 17 were expected");
}

TEST_F(PacketTest, RejectsScalesThatAreNoScales) {
  for (const float bad : {-1.0f, -0.0f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    SetScale(1, bad);
    EXPECT_EQ(CheckWithRightChecksum().code(), Code::kCorrupt) << bad;
  }
}

TEST_F(PacketTest, RejectsSetUnusedBits) {
  packet_.back() |= std::byte{0x40};
  EXPECT_EQ(CheckWithRightChecksum().code(), Code::kCorrupt);
}

TEST_F(PacketTest, LooksAtTheChecksumOnlyWhenFlaggedNonfinite) {
  SetScale(0, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(CheckWithRightChecksum(true).ok());
  EXPECT_EQ(CheckPacket(packet_, shape_, true, {.sum = 1, .weighted = 1}).code(), Code::kCorrupt);
}

// 300 codes of 4 bits in blocks of 128: three scales, 10 bytes of padding, 150 bytes of codes.
class LowBitPacketTest : public ::testing::Test {
 protected:
  static PacketShape ShapeFor(CodecKind kind, kernels::LowBitCodec codec, size_t count) {
    return ShapeOf(count, PacketFormat{{.kind = kind, .low_bit = codec, .block = 128}});
  }
  static Status Check(const PacketShape& shape, const std::vector<std::byte>& packet) {
    return CheckForm(packet, shape);
  }
  static std::vector<std::byte> With(const PacketShape& shape, size_t offset, uint16_t value) {
    std::vector<std::byte> packet(shape.bytes());
    std::memcpy(packet.data() + offset, &value, sizeof(value));
    return packet;
  }
};

TEST_F(LowBitPacketTest, HasTheBytesOfTheFormat) {
  using kernels::LowBitCodec;
  EXPECT_EQ(ShapeFor(CodecKind::kLowBit, LowBitCodec::kFp4, 300).bytes(), 16 + 150u);
  EXPECT_EQ(ShapeFor(CodecKind::kLowBit, LowBitCodec::kFp4, 301).bytes(), 16 + 151u);
  EXPECT_EQ(ShapeFor(CodecKind::kLowBitEf, LowBitCodec::kInt2, 5).bytes(), 16 + 2u);
  EXPECT_EQ(ShapeFor(CodecKind::kLowBit, LowBitCodec::kUint8, 128 * 5).bytes(), 32 + 640u);
  EXPECT_EQ(ShapeFor(CodecKind::kLowBit, LowBitCodec::kInt8, 0).bytes(), 0u);
}

TEST_F(LowBitPacketTest, OnlyCallsWithoutFeedbackMayHaveNanScales) {
  const auto nan_in = [](CodecKind kind) {
    const PacketShape shape = ShapeFor(kind, kernels::LowBitCodec::kFp4, 300);
    return Check(shape, With(shape, 2, 0x7fc0));
  };
  EXPECT_TRUE(nan_in(CodecKind::kLowBit).ok());
  EXPECT_EQ(nan_in(CodecKind::kLowBitEf).code(), Code::kCorrupt);
}

TEST_F(LowBitPacketTest, RejectsOtherScalesPaddingAndUnusedBits) {
  const PacketShape shape = ShapeFor(CodecKind::kLowBit, kernels::LowBitCodec::kFp4, 301);
  EXPECT_TRUE(Check(shape, With(shape, 4, 0x3f80)).ok());
  for (const uint16_t scale : {0x8000, 0xbf80, 0x7f80, 0xff80, 0x7fc1, 0xffc0}) {
    EXPECT_EQ(Check(shape, With(shape, 4, scale)).code(), Code::kCorrupt) << scale;
  }
  EXPECT_EQ(Check(shape, With(shape, 6, 1)).code(), Code::kCorrupt);
  EXPECT_EQ(Check(shape, With(shape, 14, 0x100)).code(), Code::kCorrupt);
  EXPECT_EQ(Check(shape, With(shape, shape.bytes() - 2, 0x1000)).code(), Code::kCorrupt);
  EXPECT_TRUE(Check(shape, With(shape, shape.bytes() - 2, 0x0f00)).ok());
}

TEST_F(LowBitPacketTest, MinimumsMayBeNegativeButNotInfinite) {
  const PacketShape shape = ShapeFor(CodecKind::kLowBit, kernels::LowBitCodec::kUint8, 300);
  EXPECT_TRUE(Check(shape, With(shape, 6, 0xbf80)).ok());
  EXPECT_EQ(Check(shape, With(shape, 6, 0xff80)).code(), Code::kCorrupt);
  EXPECT_EQ(Check(shape, With(shape, 6, 0x7fc0)).code(), Code::kCorrupt);
}

// A packet with a weight, or the weight alone.
class WeightedPacketTest : public ::testing::Test {
 protected:
  WeightedPacketTest() : packet_(shape_.bytes()) { SetWeight(0.5f, packet_.data()); }

  Code Check(size_t bytes) const {
    const auto checksum = kernels::reference::ChecksumOf(packet_.data(), bytes);
    return CheckPacket(std::span(packet_).first(bytes), shape_, false, checksum).code();
  }

  const PacketShape shape_ = ShapeOf(70, {{.kind = CodecKind::kSign, .block = 64}, true});
  std::vector<std::byte> packet_;
};

TEST_F(WeightedPacketTest, BeginsWith16Bytes) {
  EXPECT_EQ(shape_.bytes(), 16 + 2 * 4 + 9u);
  EXPECT_EQ(ShapeOf(0, {{.kind = CodecKind::kSign, .block = 64}, true}).bytes(), 16u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(ViewOf(packet_.data(), shape_).scales),
            packet_.data() + 16);
  EXPECT_EQ(Check(shape_.bytes()), Code::kOk);
  EXPECT_EQ(WeightOf(packet_.data()), 0.5f);
}

TEST_F(WeightedPacketTest, EndsThereIfTheRankIsAbsent) {
  EXPECT_EQ(Check(16), Code::kCorrupt) << "the weight is not 0";
  SetWeight(0, packet_.data());
  EXPECT_EQ(Check(16), Code::kOk);
  EXPECT_EQ(Check(17), Code::kCorrupt);
  EXPECT_EQ(Check(shape_.bytes()), Code::kCorrupt);
  EXPECT_TRUE(CheckForm(packet_, shape_).ok()) << "as in a group";
  packet_.back() = std::byte{1};
  EXPECT_EQ(CheckForm(packet_, shape_).code(), Code::kCorrupt);
}

TEST_F(WeightedPacketTest, HasAFiniteWeightAndZeros) {
  for (const float weight :
       {-1.0f, -0.0f, 0x1p65f, 0x1p-65f, std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    SetWeight(weight, packet_.data());
    EXPECT_EQ(Check(shape_.bytes()), Code::kCorrupt) << weight;
  }
  for (size_t byte = 4; byte < 16; ++byte) {
    SetWeight(1, packet_.data());
    packet_[byte] = std::byte{1};
    EXPECT_EQ(Check(shape_.bytes()), Code::kCorrupt) << byte;
  }
}

// 500 elements in blocks of 320, of which 5 + ceil(5 * 180 / 320) = 8 are sent: 8 bytes of
// magnitudes, 12 of indices and 2 of values, the first two each padded to 16.
class SparsePacketTest : public ::testing::Test {
 protected:
  static constexpr kernels::SparseCodec kF32 = {.k = 5, .values = kernels::SparseValues::kF32};

  static PacketShape ShapeFor(CodecKind kind, kernels::SparseCodec codec, size_t count = 500) {
    return ShapeOf(count, PacketFormat{{.kind = kind, .sparse = codec, .block = 320}});
  }
  // A good packet: indices 0 to 4, and 0 to 2 in the second block.
  static std::vector<std::byte> Good(const PacketShape& shape) {
    std::vector<std::byte> packet(shape.bytes());
    for (size_t i = 0; i < shape.codec.sparse_format().Selected(shape.element_count); ++i) {
      SetIndex(shape, i, i % 5, &packet);
    }
    return packet;
  }
  static void SetIndex(const PacketShape& shape, size_t i, size_t index,
                       std::vector<std::byte>* packet) {
    for (size_t bit = 0; bit < 12; ++bit) {
      const size_t at =
          8 * shape.codec.sparse_format().IndexOffset(shape.element_count) + 12 * i + bit;
      const auto mask = static_cast<std::byte>(1u << at % 8);
      (*packet)[at / 8] =
          (index >> bit & 1) != 0 ? (*packet)[at / 8] | mask : (*packet)[at / 8] & ~mask;
    }
  }
  template <class Number>
  static void Put(Number number, size_t offset, std::vector<std::byte>* packet) {
    std::memcpy(packet->data() + offset, &number, sizeof(number));
  }
  static Code With(const PacketShape& shape, size_t offset, uint16_t value) {
    std::vector<std::byte> packet = Good(shape);
    Put(value, offset, &packet);
    return CheckForm(packet, shape).code();
  }
  static Code WithIndex(size_t i, size_t index) {
    const PacketShape shape = ShapeFor(CodecKind::kSparse, {.k = 5});
    std::vector<std::byte> packet = Good(shape);
    SetIndex(shape, i, index, &packet);
    return CheckForm(packet, shape).code();
  }
};

TEST_F(SparsePacketTest, HasTheBytesOfTheFormat) {
  using kernels::SparseValues;
  EXPECT_EQ(ShapeFor(CodecKind::kSparse, {.k = 5}).bytes(), 16 + 16 + 2u);
  EXPECT_EQ(ShapeFor(CodecKind::kSparseEf, {.k = 5}, 0).bytes(), 0u);
  EXPECT_EQ(ShapeFor(CodecKind::kSparse, {.k = 5, .values = SparseValues::kF32}).bytes(), 16 + 32u);
  EXPECT_EQ(ShapeFor(CodecKind::kSparse, {.k = 5, .is_random = true}).bytes(), 16 + 2u);
  EXPECT_EQ(ShapeFor(CodecKind::kSparse, {.k = 5, .values = SparseValues::kF32, .is_random = true})
                .bytes(),
            32u);
}

TEST_F(SparsePacketTest, IndicesAscendWithinTheirBlock) {
  EXPECT_EQ(WithIndex(7, 2), Code::kOk);
  EXPECT_EQ(WithIndex(4, 319), Code::kOk);
  EXPECT_EQ(WithIndex(4, 320), Code::kCorrupt);  // beyond the block
  EXPECT_EQ(WithIndex(7, 179), Code::kOk);
  EXPECT_EQ(WithIndex(7, 180), Code::kCorrupt);  // beyond the short block
  EXPECT_EQ(WithIndex(7, 4095), Code::kCorrupt);
  EXPECT_EQ(WithIndex(1, 0), Code::kCorrupt);  // twice
  EXPECT_EQ(WithIndex(1, 2), Code::kCorrupt);  // that of the next one
  EXPECT_EQ(WithIndex(3, 1), Code::kCorrupt);  // out of order
}

TEST_F(SparsePacketTest, OnlyCallsWithoutFeedbackMayHaveNan) {
  for (const uint16_t magnitude : {0x0001, 0x7f7f}) {
    EXPECT_EQ(With(ShapeFor(CodecKind::kSparse, {.k = 5}), 2, magnitude), Code::kOk);
    EXPECT_EQ(With(ShapeFor(CodecKind::kSparseEf, {.k = 5}), 2, magnitude), Code::kOk);
  }
  for (const CodecKind kind : {CodecKind::kSparse, CodecKind::kSparseEf}) {
    const Code code = kind == CodecKind::kSparse ? Code::kOk : Code::kCorrupt;
    const PacketShape shape = ShapeFor(kind, {.k = 5});
    std::vector<std::byte> packet = Good(shape);
    Put(uint16_t{0x7fc0}, 0, &packet);
    Put(uint16_t{0x7fc0}, 2, &packet);
    EXPECT_EQ(CheckForm(packet, shape).code(), code);
    const PacketShape f32_shape = ShapeFor(kind, kF32);
    packet = Good(f32_shape);
    for (size_t j = 0; j < 5; ++j) Put(0x7fc0'0000u, 16 + 4 * j, &packet);
    EXPECT_EQ(CheckForm(packet, f32_shape).code(), code);
  }
  for (const uint16_t magnitude : {0x8000, 0xbf80, 0x7f80, 0xff80, 0x7fc1}) {
    EXPECT_EQ(With(ShapeFor(CodecKind::kSparse, {.k = 5}), 4, magnitude), Code::kCorrupt);
  }
  // The upper halves of fp32 values.
  EXPECT_EQ(With(ShapeFor(CodecKind::kSparse, kF32), 16 + 2, 0x7f80), Code::kCorrupt);
  EXPECT_EQ(With(ShapeFor(CodecKind::kSparse, kF32), 16 + 2, 0xbf80), Code::kOk);
}

TEST_F(SparsePacketTest, ABlockIsNanAsAWhole) {
  const PacketShape shape = ShapeFor(CodecKind::kSparse, {.k = 5});
  EXPECT_EQ(With(shape, 0, 0x7fc0), Code::kCorrupt);  // the high magnitude alone
  EXPECT_EQ(With(shape, 2, 0x7fc0), Code::kCorrupt);
  EXPECT_EQ(With(shape, 6, 0x7fc0), Code::kCorrupt);
  std::vector<std::byte> packet = Good(shape);
  Put(uint16_t{0x7fc0}, 0, &packet);
  Put(uint16_t{0x7fc0}, 2, &packet);
  Put(uint16_t{1 << 10}, 32, &packet);  // code 5 is of the second block, a number
  EXPECT_EQ(CheckForm(packet, shape).code(), Code::kOk);
  Put(uint16_t{1 << 8}, 32, &packet);
  EXPECT_EQ(CheckForm(packet, shape).code(), Code::kCorrupt);
  Put(uint16_t{2}, 32, &packet);
  EXPECT_EQ(CheckForm(packet, shape).code(), Code::kCorrupt);

  const PacketShape f32_shape = ShapeFor(CodecKind::kSparse, kF32);
  packet = Good(f32_shape);
  for (size_t j = 0; j < 8; ++j) {
    // Blocks end at values 4 and 7.
    const bool is_whole = j == 0 || j == 5;
    EXPECT_EQ(CheckForm(packet, f32_shape).code(), is_whole ? Code::kOk : Code::kCorrupt) << j;
    Put(0x7fc0'0000u, 16 + 4 * j, &packet);
  }
  EXPECT_EQ(CheckForm(packet, f32_shape).code(), Code::kOk);
}

TEST_F(SparsePacketTest, RejectsPaddingAndUnusedBits) {
  const PacketShape shape = ShapeFor(CodecKind::kSparse, {.k = 5});
  EXPECT_EQ(With(shape, 8, 1), Code::kCorrupt);  // behind the magnitudes
  EXPECT_EQ(With(shape, 14, 0x100), Code::kCorrupt);
  EXPECT_EQ(With(shape, 28, 1), Code::kCorrupt);  // behind the indices
  // 7 values have 14 bits, and 7 indices 84.
  const PacketShape odd = ShapeFor(CodecKind::kSparse, {.k = 5}, 320 + 128);
  EXPECT_EQ(odd.codec.sparse_format().Selected(448), 7u);
  EXPECT_EQ(With(odd, odd.bytes() - 2, 0x3fff), Code::kOk);
  EXPECT_EQ(With(odd, odd.bytes() - 2, 0x4000), Code::kCorrupt);
  std::vector<std::byte> packet = Good(odd);
  packet[16 + 10] |= std::byte{0x10};
  EXPECT_EQ(CheckForm(packet, odd).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace onebit
