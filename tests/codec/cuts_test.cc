// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Cuts: which offsets are allowed, where runs begin, and masks whose runs begin at bytes.
#include "codec/cuts.h"

#include <random>

#include <gtest/gtest.h>

namespace onebit {
namespace {

std::shared_ptr<const Cuts> CutsAt(const std::vector<size_t>& offsets, size_t count) {
  Result<std::shared_ptr<const Cuts>> cuts = Cuts::Create(offsets, count);
  EXPECT_TRUE(cuts.ok());
  return cuts.ok() ? cuts.value() : nullptr;
}

TEST(CutsTest, NoneAreANullPointer) { EXPECT_EQ(CutsAt({}, 10), nullptr); }

TEST(CutsTest, MustAscendWithinTheTensor) {
  const auto text = [](const std::vector<size_t>& offsets) {
    return Cuts::Create(offsets, 10).status().text();
  };
  EXPECT_EQ(text({0}),
            "compressor config: cuts[0] is 0, but must be above 0, the first element, and below "
            "the count, 10");
  EXPECT_EQ(text({3, 3}),
            "compressor config: cuts[1] is 3, but must be above 3, the cut before it, and below "
            "the count, 10");
  EXPECT_EQ(text({3, 10}),
            "compressor config: cuts[1] is 10, but must be above 3, the cut before it, and below "
            "the count, 10");
  EXPECT_TRUE(Cuts::Create(std::vector<size_t>{1, 9}, 10).ok());
}

TEST(CutsTest, EveryElementLiesBetweenTwo) {
  const auto cuts = CutsAt({1, 5, 6}, 10);
  const std::vector<size_t> before = {0, 1, 1, 1, 1, 5, 6, 6, 6, 6};
  const std::vector<size_t> after = {1, 5, 5, 5, 5, 6, 10, 10, 10, 10};
  for (size_t element = 0; element < 10; ++element) {
    EXPECT_EQ(cuts->AtOrBefore(element), before[element]);
    EXPECT_EQ(cuts->After(element), after[element]);
  }
}

TEST(CutsTest, DigestTellsThemApart) {
  EXPECT_EQ(CutsAt({3, 5}, 10)->digest(), CutsAt({3, 5}, 11)->digest());
  EXPECT_NE(CutsAt({3, 5}, 10)->digest(), CutsAt({3, 6}, 10)->digest());
  EXPECT_NE(CutsAt({3}, 10)->digest(), 0u);
}

TEST(CutsTest, BitsBehindACutBeginAtAByte) {
  std::mt19937 random(5);
  constexpr size_t kCount = 200;
  std::vector<uint8_t> mask(kCount / 8);
  for (uint8_t& byte : mask) byte = static_cast<uint8_t>(random());
  const std::vector<size_t> offsets = {1, 9, 16, 23, 100, 101, 199};
  const auto cuts = CutsAt(offsets, kCount);
  const std::vector<uint8_t> spread = cuts->Spread(mask);
  EXPECT_EQ(spread.size(), 1 + 1 + 1 + 1 + 10 + 1 + 13 + 1u);
  for (size_t element = 0; element < kCount; ++element) {
    const size_t behind = element - cuts->AtOrBefore(element);
    const size_t byte = cuts->MaskByte(element - behind % 8);
    EXPECT_EQ(spread[byte] >> (behind % 8) & 1, mask[element / 8] >> (element % 8) & 1) << element;
  }
}

}  // namespace
}  // namespace onebit
