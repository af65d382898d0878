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

}  // namespace
}  // namespace onebit
