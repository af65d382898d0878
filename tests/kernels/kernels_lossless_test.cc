// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of the codec lossless: what the format's text says, the same bytes from every instruction
// set, the same elements back, and no access outside of a block, whatever its bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>

#include "kernels/lossless.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {

bool operator==(const LosslessWord& a, const LosslessWord& b) { return a.Pack() == b.Pack(); }
std::ostream& operator<<(std::ostream& out, const LosslessWord& word) {
  return out << "form " << static_cast<int>(word.form) << ", low bits " << word.gap_bits << " and "
             << word.change_bits << ", " << word.bytes << " bytes";
}

namespace {

// A block of elements, what they were before, and how many differ.
struct Change {
  Bytes now;
  Bytes before;
  size_t changed = 0;
};

template <typename Bits>
Change ChangeAs(size_t count, double share, double more_than_one, Random& random) {
  std::uniform_real_distribution<double> unit;
  std::geometric_distribution<uint32_t> more(1 - std::max(more_than_one, 0.01));
  Change change;
  change.before = RandomElements(sizeof(Bits) == 2 ? DataType::kBf16 : DataType::kF32,
                                 Numbers::kOrdinary, count, random);
  change.now = change.before;
  for (size_t i = 0; i < count; ++i) {
    if (unit(random) >= share) continue;
    Bits element = 0;
    memcpy(&element, &change.before[i * sizeof(Bits)], sizeof(Bits));
    const auto distance = static_cast<Bits>(1 + (more_than_one == 0 ? 0 : more(random)));
    element = OrderOf(static_cast<Bits>(random() % 2 == 0 ? OrderOf(element) + distance
                                                          : OrderOf(element) - distance));
    memcpy(&change.now[i * sizeof(Bits)], &element, sizeof(Bits));
    ++change.changed;
  }
  return change;
}

Change RandomChange(size_t width, size_t count, double share, double more_than_one,
                    Random& random) {
  return width == 2 ? ChangeAs<uint16_t>(count, share, more_than_one, random)
                    : ChangeAs<uint32_t>(count, share, more_than_one, random);
}

struct Block {
  LosslessWord word;
  Bytes bytes;  // with kLosslessSlack behind them
};

using Encode = LosslessWord (*)(const void*, const void*, size_t, size_t, LosslessScratch*,
                                uint8_t*);

class LosslessTest : public EachTarget {
 protected:
  Block Encoded(Encode encode, const Change& change, size_t width) {
    const size_t count = change.now.size() / width;
    Block block;
    block.bytes.assign(change.now.size() + kLosslessSlack, 0xcc);
    block.word = encode(change.now.data(), change.before.data(), count, width, scratch_.get(),
                        block.bytes.data());
    block.bytes.resize(block.word.bytes);
    return block;
  }
  // Returns `copy` with the block's changes; nothing if the block is refused.
  static std::optional<Bytes> Decoded(const Block& block, Bytes copy, size_t width,
                                      bool is_reference) {
    Bytes bytes = block.bytes;
    bytes.resize(bytes.size() + kLosslessSlack, 0xff);
    const auto decode = is_reference ? reference::LosslessDecode : cpu::LosslessDecode;
    if (!decode(block.word, bytes.data(), copy.size() / width, width, copy.data())) return {};
    return copy;
  }

  Random random_{11};
  std::unique_ptr<LosslessScratch> scratch_ = std::make_unique<LosslessScratch>();
};

TEST_P(LosslessTest, TheExampleOfTheFormat) {
  const uint16_t now[] = {0x3f80, 0x8000, 0x0001, 0xc000};
  const uint16_t before[] = {0x3f80, 0x0000, 0x0001, 0xbfff};
  uint8_t bytes[8 + kLosslessSlack] = {};
  for (const Encode encode : {reference::LosslessEncode, cpu::LosslessEncode}) {
    const LosslessWord word = encode(now, before, 4, 2, scratch_.get(), bytes);
    EXPECT_EQ(word.Pack(), 0x1005u) << word;
    EXPECT_EQ(bytes[0], 0xff);
  }
}

TEST(LosslessOrderTest, NeighboursDifferByOneAndZerosAreNeighbours) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto element = static_cast<uint16_t>(bits);
    EXPECT_EQ(OrderOf(OrderOf(element)), element);
  }
  const auto order = [](float value) {
    return static_cast<int32_t>(OrderOf(std::bit_cast<uint32_t>(value)));
  };
  EXPECT_EQ(order(0.0f) - order(-0.0f), 1);
  const float steps[] = {-HUGE_VALF, -2.0f, -1e-45f, -0.0f, 0.0f, 1e-45f, 1.0f, HUGE_VALF};
  for (size_t i = 1; i < std::size(steps); ++i) EXPECT_LT(order(steps[i - 1]), order(steps[i]));
  EXPECT_EQ(order(std::nextafterf(-1.0f, -2.0f)) - order(-1.0f), -1);
}

TEST_P(LosslessTest, EqualsReferenceAndComesBackBitForBit) {
  size_t forms[4] = {};
  for (const size_t width : {2, 4}) {
    for (const double share : {0.0, 0.001, 0.02, 0.15, 0.5, 0.9, 1.0}) {
      for (const double more : {0.0, 0.15, 0.9, 0.9999}) {
        for (const size_t count : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000},
                                   size_t{4099}, kLosslessBlock}) {
          if (count == kLosslessBlock && more != 0.15) continue;
          const Change change = RandomChange(width, count, share, more, random_);
          const Block block = Encoded(cpu::LosslessEncode, change, width);
          const Block expected = Encoded(reference::LosslessEncode, change, width);
          ASSERT_EQ(block.word, expected.word) << count << ' ' << share << ' ' << more;
          ASSERT_EQ(block.bytes, expected.bytes) << block.word;
          ASSERT_TRUE(IsLosslessWord(block.word, count, width)) << block.word;
          ASSERT_EQ(LosslessWord::Unpack(block.word.Pack()), block.word);
          ASSERT_EQ(Decoded(block, change.before, width, false), change.now) << block.word;
          ASSERT_EQ(Decoded(block, change.before, width, true), change.now) << block.word;
          ++forms[static_cast<size_t>(block.word.form)];
        }
      }
    }
  }
  for (const size_t blocks : forms) EXPECT_GT(blocks, 5u);
}

// From every element to every distance, and from any bits to any others: NaNs, infinities, zeros.
TEST_P(LosslessTest, AnyBitsBecomeAnyOthers) {
  for (const size_t width : {2, 4}) {
    for (int round = 0; round < 8; ++round) {
      Change change;
      change.before = RandomBits(8 * 4096 * width, random_);
      change.now = round % 2 == 0 ? RandomBits(8 * 4096 * width, random_) : change.before;
      for (size_t i = 0; round % 2 == 1 && i < 40; ++i) {
        change.now[random_() % change.now.size()] ^= static_cast<uint8_t>(1u << (random_() % 8));
      }
      const Block block = Encoded(cpu::LosslessEncode, change, width);
      EXPECT_EQ(block.bytes, Encoded(reference::LosslessEncode, change, width).bytes);
      EXPECT_EQ(Decoded(block, change.before, width, false), change.now);
      EXPECT_EQ(Decoded(block, change.before, width, true), change.now);
    }
  }
  Change all;
  for (uint32_t bits = 0; bits < kLosslessBlock; ++bits) {
    const auto element = static_cast<uint16_t>(bits);
    const auto other = static_cast<uint16_t>(OrderOf(element) + 0x8000u);  // as far as can be
    all.before.insert(all.before.end(), {uint8_t(element), uint8_t(element >> 8)});
    const uint16_t now = bits % 64 == 0 ? OrderOf(other) : element;
    all.now.insert(all.now.end(), {uint8_t(now), uint8_t(now >> 8)});
  }
  const Block block = Encoded(cpu::LosslessEncode, all, 2);
  EXPECT_EQ(block.word.form, LosslessForm::kGaps);
  EXPECT_EQ(block.bytes, Encoded(reference::LosslessEncode, all, 2).bytes);
  EXPECT_EQ(Decoded(block, all.before, 2, false), all.now);
}

// A block's bytes may be anything: both decoders agree, and touch neither what lies before and
// behind the copy nor what lies behind the slack.
TEST_P(LosslessTest, RefusesWhatIsNoBlock) {
  constexpr size_t kCount = 600;
  GuardedMemory copies(kCount * 4);
  GuardedMemory packets(kCount * 4 + kLosslessSlack);
  size_t refused = 0;
  size_t taken = 0;
  for (int round = 0; round < 6000; ++round) {
    const size_t width = round % 2 == 0 ? 2 : 4;
    const double share = round % 3 == 0 ? 0.02 : round % 3 == 1 ? 0.2 : 0.7;
    const Change change = RandomChange(width, kCount, share, 0.2, random_);
    Block block = Encoded(cpu::LosslessEncode, change, width);
    if (block.bytes.empty()) continue;
    switch (random_() % 4) {
      case 0:
        block.bytes[random_() % block.bytes.size()] ^= static_cast<uint8_t>(1u << (random_() % 8));
        break;
      case 1:
        block.bytes.resize(random_() % block.bytes.size());
        block.word.bytes = block.bytes.size();
        break;
      case 2:
        block.bytes.resize(block.bytes.size() + 1 + random_() % 3, 0);
        block.word.bytes = block.bytes.size();
        break;
      default:
        block.word = LosslessWord::Unpack(block.word.Pack() ^ 1u << (random_() % 12));
    }
    const std::optional<Bytes> expected = Decoded(block, change.before, width, true);
    Bytes bytes = block.bytes;
    bytes.resize(bytes.size() + kLosslessSlack, 0xff);
    const uint8_t* const placed = packets.Place(bytes, Edge::kHigh);
    auto* const copy =
        const_cast<uint8_t*>(copies.Place(change.before, round % 4 < 2 ? Edge::kLow : Edge::kHigh));
    const bool is_taken = cpu::LosslessDecode(block.word, placed, kCount, width, copy);
    ASSERT_EQ(is_taken, expected.has_value()) << round << ": " << block.word;
    if (is_taken) {
      ASSERT_EQ(Bytes(copy, copy + change.before.size()), *expected);
    }
    ++(is_taken ? taken : refused);
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(taken, 100u);  // a flipped bit of a sign, for one
}

// Two flips of signs, and distances that cancel out in sums, have other digests.
TEST_P(LosslessTest, DigestsTellElementsApart) {
  Bytes data = RandomBits(8 * 1003, random_);
  for (size_t bytes = 0; bytes <= data.size(); bytes += bytes < 70 ? 1 : 93) {
    EXPECT_EQ(cpu::LosslessDigest(data.data(), bytes),
              reference::LosslessDigest(data.data(), bytes));
  }
  EXPECT_EQ(reference::LosslessDigest("\x01", 1), LosslessMix(kLosslessStep ^ 1));
  const uint64_t digest = cpu::LosslessDigest(data.data(), data.size());
  const auto differs = [&](std::initializer_list<std::pair<size_t, int>> changes) {
    Bytes other = data;
    for (const auto& [at, by] : changes) other[at] = static_cast<uint8_t>(other[at] + by);
    return cpu::LosslessDigest(other.data(), other.size()) != digest;
  };
  for (size_t i = 0; i + 64 < data.size(); ++i) {
    EXPECT_TRUE(differs({{i, 1}})) << i;
    EXPECT_TRUE(differs({{i, 128}, {i + 8, 128}})) << i;
    EXPECT_TRUE(differs({{i, 128}, {i + 16, 128}})) << i;
    EXPECT_TRUE(differs({{i, 1}, {i + 8, -2}, {i + 16, 1}})) << i;
  }
  Bytes swapped = data;
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 8);
  EXPECT_NE(cpu::LosslessDigest(swapped.data(), swapped.size()), digest);
}

// Positions cost at least H(p) / p bits a change, and signs one; distances what their frequencies
// say.
TEST_P(LosslessTest, IsCloseToTheEntropy) {
  for (const double p : {0.001, 0.005, 0.02, 0.05, 0.15}) {
    constexpr double kMore = 0.15;
    size_t bits = 0;
    size_t changed = 0;
    for (int block = 0; block < 20; ++block) {
      const Change change = RandomChange(2, kLosslessBlock, p, kMore, random_);
      bits += 32 + 8 * Encoded(cpu::LosslessEncode, change, 2).word.bytes;
      changed += change.changed;
    }
    const auto entropy = [](double q) { return -(q * std::log2(q) + (1 - q) * std::log2(1 - q)); };
    const double least = entropy(p) / p + 1 + entropy(kMore) / (1 - kMore);
    EXPECT_LE(static_cast<double>(bits) / static_cast<double>(changed), 1.15 * least) << p;
  }
}

ONEBIT_TEST_EACH_TARGET(LosslessTest);

}  // namespace
}  // namespace onebit::kernels
