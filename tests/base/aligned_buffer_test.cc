// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Alignment, zeroing and ownership of buffers.
#include "base/aligned_buffer.h"

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

namespace onebit {
namespace {

AlignedBuffer Make(size_t bytes) {
  auto buffer = AlignedBuffer::Create(bytes, "a test");
  EXPECT_TRUE(buffer.ok()) << buffer.status().text();
  return std::move(buffer).value();
}

TEST(AlignedBufferTest, IsZeroedAndOnACacheLine) {
  for (const size_t bytes : {1, 63, 64, 65, 4096, 100'001}) {
    const AlignedBuffer buffer = Make(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kCacheLine, 0u);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes,
                            [](std::byte value) { return value == std::byte{0}; }));
  }
}

TEST(AlignedBufferTest, ClearZeroes) {
  AlignedBuffer buffer = Make(100);
  std::fill_n(buffer.data(), 100, std::byte{7});
  buffer.Clear();
  EXPECT_EQ(std::count(buffer.data(), buffer.data() + 100, std::byte{0}), 100);
}

TEST(AlignedBufferTest, EmptyHasNoMemory) {
  AlignedBuffer buffer = Make(0);
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.data(), nullptr);
  buffer.Clear();
}

TEST(AlignedBufferTest, MovedFromIsEmpty) {
  AlignedBuffer from = Make(100);
  std::byte* memory = from.data();
  const AlignedBuffer to = std::move(from);
  EXPECT_EQ(to.data(), memory);
  EXPECT_EQ(to.size(), 100u);
  EXPECT_EQ(from.size(), 0u);  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(from.data(), nullptr);
}

TEST(AlignedBufferTest, SizeBeyondTheAddressSpaceIsOutOfMemory) {
  const auto buffer = AlignedBuffer::Create(SIZE_MAX - 1, "a residual");
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), Code::kOutOfMemory);
  EXPECT_NE(buffer.status().text().find("a residual"), std::string::npos);
}

TEST(RoundUpTest, GoesToTheNextMultiple) {
  EXPECT_EQ(RoundUp(0, 64), 0u);
  EXPECT_EQ(RoundUp(1, 64), 64u);
  EXPECT_EQ(RoundUp(64, 64), 64u);
  EXPECT_EQ(RoundUp(65, 64), 128u);
}

}  // namespace
}  // namespace onebit
