// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit packets to numbers or to packets: every instruction set against the scalar oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/low_bit.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr Draws kDraws = {.seed = 99, .first = 5, .epoch = 1, .tensor = 2, .stream = 3};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

class LowBitDecodeTest : public EachTarget {
 protected:
  std::string NameOf(const LowBitPacketCase& c) const {
    return "codec " + std::to_string(static_cast<int>(c.format.codec)) + " block " +
           std::to_string(c.format.block) + " ranks " + std::to_string(c.ranks) + " count " +
           std::to_string(c.count);
  }

  std::optional<Bytes> MaskIf(bool is_masked, size_t count) {
    if (!is_masked) return std::nullopt;
    return RandomBits(count, random_);
  }

  LowBitOutcome ExpectSameAverage(const LowBitPacketCase& c, DataType type, bool is_sum,
                                  bool is_masked, Edge edge) {
    const std::optional<Bytes> mask = MaskIf(is_masked, c.count);
    const LowBitReduceInput in = {.output_type = type, .is_sum = is_sum};
    const LowBitOutcome expected = runner_.Average(kReferenceLowBit, in, c, mask, edge);
    EXPECT_TRUE(runner_.Average(kCpuLowBit, in, c, mask, edge) == expected)
        << NameOf(c) << " type " << static_cast<int>(type) << (is_sum ? " sum" : "")
        << (is_masked ? " masked" : "");
    return expected;
  }

  LowBitOutcome ExpectSameDecode(const LowBitPacketCase& c, DataType type, bool is_masked,
                                 Edge edge) {
    const std::optional<Bytes> mask = MaskIf(is_masked, c.count);
    const LowBitOutcome expected = runner_.DecodeOne(kReferenceLowBit, c, type, mask, edge);
    EXPECT_TRUE(runner_.DecodeOne(kCpuLowBit, c, type, mask, edge) == expected)
        << NameOf(c) << " type " << static_cast<int>(type) << (is_masked ? " masked" : "");
    return expected;
  }

  LowBitOutcome ExpectSameDelta(const LowBitPacketCase& c, DataType type, bool is_masked,
                                bool is_in_place, Numbers numbers, Edge edge) {
    const std::optional<Bytes> mask = MaskIf(is_masked, c.count);
    const Bytes held = RandomElements(DataType::kF32, numbers, c.count, random_);
    const LowBitOutcome expected =
        runner_.AddDelta(kReferenceLowBit, c, type, mask, held, false, edge);
    EXPECT_TRUE(runner_.AddDelta(kCpuLowBit, c, type, mask, held, is_in_place, edge) == expected)
        << NameOf(c) << " type " << static_cast<int>(type) << (is_masked ? " masked" : "");
    return expected;
  }

  LowBitOutcome ExpectSameReduce(const LowBitPacketCase& c, std::optional<DataType> residual_type,
                                 DataType output_type, bool is_sum, bool is_masked,
                                 bool is_in_place, Edge edge,
                                 Numbers numbers = Numbers::kOrdinary) {
    const std::optional<Bytes> mask = MaskIf(is_masked, c.count);
    std::optional<Bytes> residual;
    LowBitReduceInput in = {.output_type = output_type, .is_sum = is_sum};
    if (residual_type) {
      in.residual_type = *residual_type;
      residual = RandomElements(*residual_type, numbers, c.count, random_);
    }
    const LowBitOutcome expected =
        runner_.Reduce(kReferenceLowBit, in, c, kDraws, mask, residual, false, edge);
    const LowBitOutcome actual =
        runner_.Reduce(kCpuLowBit, in, c, kDraws, mask, residual, is_in_place, edge);
    EXPECT_TRUE(actual == expected)
        << NameOf(c) << " output type " << static_cast<int>(output_type) << " residual type "
        << (residual_type ? static_cast<int>(*residual_type) : -1) << (is_sum ? " sum" : "")
        << (is_masked ? " masked" : "");
    return expected;
  }

  LowBitRunner runner_{19};
  Random random_{12};
};

TEST_P(LowBitDecodeTest, EqualsReferenceAtAllShortCounts) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const std::vector<size_t> blocks = ShortBlocks(codec);
    for (const DataType type : kAllTypes) {
      for (size_t count = 0; count <= 513; ++count) {
        const LowBitFormat format = {codec, blocks[count % blocks.size()]};
        const LowBitPacketCase c =
            RandomLowBitPackets(format, 1, count, Numbers::kOrdinary, random_);
        ExpectSameDecode(c, type, count % 3 == 0, Edge::kHigh);
        ExpectSameDecode(c, type, count % 2 == 0, Edge::kLow);
        ExpectSameDelta(c, type, count % 3 == 1, count % 2 == 0, Numbers::kOrdinary, Edge::kHigh);
      }
    }
  }
}

TEST_P(LowBitDecodeTest, SumsEqualReferenceAtAllShortCounts) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const std::vector<size_t> blocks = ShortBlocks(codec);
    for (size_t count = 0; count <= 513; ++count) {
      const LowBitFormat format = {codec, blocks[count % blocks.size()]};
      const size_t ranks = 1 + count % 9;
      const LowBitPacketCase c =
          RandomLowBitPackets(format, ranks, count, Numbers::kOrdinary, random_);
      ExpectSameAverage(c, kAllTypes[count % 3], count % 2 == 0, count % 5 == 0, Edge::kHigh);
      const bool has_residual = HasResidual(codec) && count % 4 != 0;
      const std::optional<DataType> residual_type =
          has_residual ? std::optional(count % 2 == 0 ? DataType::kF32 : DataType::kBf16)
                       : std::nullopt;
      ExpectSameReduce(c, residual_type, kAllTypes[count % 3], count % 2 == 1, count % 5 == 1,
                       count % 7 == 0, Edge::kHigh);
    }
  }
}

TEST_P(LowBitDecodeTest, SumsEqualReferenceAroundBlocks) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const size_t ranks : {1, 3, 8, 9, 16, 19}) {
      for (const size_t block : {12, 32, 128, 1000, 4096, 8192}) {
        for (const size_t count : CountsAround(block)) {
          const LowBitPacketCase c =
              RandomLowBitPackets({codec, block}, ranks, count, Numbers::kOrdinary, random_);
          const bool is_masked = count % 3 == 0;
          ExpectSameAverage(c, DataType::kF32, false, is_masked, Edge::kHigh);
          ExpectSameReduce(c, std::nullopt, DataType::kF32, true, is_masked, false, Edge::kHigh);
          if (!HasResidual(codec)) continue;
          ExpectSameReduce(c, DataType::kF32, DataType::kF32, false, is_masked, true, Edge::kLow);
        }
      }
    }
  }
}

TEST_P(LowBitDecodeTest, EqualsReferenceAtAllMagnitudes) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const DataType type : kAllTypes) {
      int overflows = 0;
      for (const Numbers numbers : kAllNumbers) {
        for (const size_t ranks : {1, 2, 3, 8, 9}) {
          for (const size_t count : {1, 37, 500}) {
            const LowBitPacketCase c =
                RandomLowBitPackets({codec, 64}, ranks, count, numbers, random_);
            const LowBitOutcome outcome =
                ExpectSameAverage(c, type, count == 37, ranks == 3, Edge::kHigh);
            overflows += outcome.result.is_finite ? 0 : 1;
            ExpectSameDelta(c, type, ranks == 2, true, numbers, Edge::kHigh);
            ExpectSameReduce(c, std::nullopt, type, ranks == 8, count == 37, false, Edge::kHigh);
            if (!HasResidual(codec)) continue;
            ExpectSameReduce(c, DataType::kF32, type, ranks == 8, count == 37, false, Edge::kHigh,
                             numbers);
          }
        }
      }
      EXPECT_GT(overflows, 0) << "no output is too large for type " << static_cast<int>(type);
    }
  }
}

// A block is NaN where a packet says so, and no other.
TEST_P(LowBitDecodeTest, ValuesThatOverflowAreInfinite) {
  // A fused multiply-add would have a finite sum of them.
  LowBitPacketCase c =
      RandomLowBitPackets({LowBitCodec::kInt8, 64}, 2, 64, Numbers::kOrdinary, random_);
  for (const size_t rank : {0, 1}) {
    c.scales[rank][0] = rank == 0 ? (127 + 121) << 7 : (127 + 126) << 7;
    for (uint8_t& code : c.codes[rank]) code = static_cast<uint8_t>(rank == 0 ? 63 : -4);
  }
  const LowBitOutcome sum = ExpectSameAverage(c, DataType::kF32, true, false, Edge::kHigh);
  EXPECT_FALSE(sum.result.is_finite);
}

TEST_P(LowBitDecodeTest, NonfiniteBlocksAreLocal) {
  constexpr size_t kCount = 500, kBlock = 60;
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const size_t ranks : {1, 3, 8, 17}) {
      LowBitPacketCase c =
          RandomLowBitPackets({codec, kBlock}, ranks, kCount, Numbers::kOrdinary, random_);
      const size_t bad = random_() % 8;
      c.scales[0][bad] = c.scales[ranks - 1][bad] = 0x7FC0;
      for (const bool is_masked : {false, true}) {
        const LowBitOutcome average =
            ExpectSameAverage(c, DataType::kF32, false, is_masked, Edge::kHigh);
        EXPECT_EQ(average.result.nonfinite_blocks, 1u);
        EXPECT_FALSE(average.result.is_finite);
        const auto* values = reinterpret_cast<const float*>(average.output.data());
        for (size_t i = 0; i < kCount && !is_masked; ++i) {
          EXPECT_EQ(std::isnan(values[i]), i / kBlock == bad) << i;
        }
        const LowBitOutcome reduced =
            ExpectSameReduce(c, std::nullopt, DataType::kF32, false, is_masked, false, Edge::kHigh);
        EXPECT_EQ(reduced.result.nonfinite_blocks, 1u);
        EXPECT_EQ(reduced.scales[bad], 0x7FC0);
      }
    }
  }
}

// ---- Sums of scales that differ little, which some targets compute in integers

// Scales from 2^exponent up to 2^(exponent + spread + 1). The first rank has no fp4 code that is
// -0, as after compression.
LowBitPacketCase SimilarPackets(LowBitFormat format, size_t ranks, size_t count, unsigned exponent,
                                unsigned spread, Random& random) {
  LowBitPacketCase c = RandomLowBitPackets(format, ranks, count, Numbers::kOrdinary, random);
  for (std::vector<uint16_t>& scales : c.scales) {
    for (uint16_t& scale : scales) {
      const unsigned biased = exponent + 127 + random() % (spread + 1);
      scale = static_cast<uint16_t>(biased << 7 | random() % 128);
    }
  }
  if (format.codec != LowBitCodec::kFp4) return c;
  for (uint8_t& byte : c.codes[0]) {
    if ((byte & 0xF) == 8) byte ^= 0x8;
    if ((byte & 0xF0) == 0x80) byte ^= 0x80;
  }
  return c;
}

TEST_P(LowBitDecodeTest, SumsOfSimilarScalesEqualReference) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    size_t trial = 0;
    for (const size_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
      for (const size_t block : {32, 64, 128, 192, 256, 512, 1024, 4096, 8192}) {
        for (const size_t count : CountsAround(block)) {
          const unsigned spread = trial % 7;
          const LowBitPacketCase c =
              SimilarPackets({codec, block}, ranks, count, 0, spread, random_);
          const DataType type = kAllTypes[trial % 4 == 3 ? 0 : trial % 4];
          const Edge edge = trial % 2 == 0 ? Edge::kHigh : Edge::kLow;
          ExpectSameAverage(c, type, trial % 3 == 0, trial % 5 == 0, edge);
          if (trial % 4 == 0) {
            ExpectSameReduce(c, std::nullopt, DataType::kF32, trial % 3 == 1, false, false, edge);
          }
          ++trial;
        }
      }
    }
  }
}

TEST_P(LowBitDecodeTest, SumsOfSimilarScalesEqualReferenceAtAllShortCounts) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (size_t count = 0; count <= 513; ++count) {
      const size_t block = size_t{64} << count % 4;
      const LowBitPacketCase c =
          SimilarPackets({codec, block}, 1 + count % 9, count, 0, count % 3, random_);
      ExpectSameAverage(c, kAllTypes[count % 3], count % 2 == 0, count % 5 == 0, Edge::kHigh);
    }
  }
}

// The largest values of all ranks have the same sign, and scales reach the largest distance for
// which integers suffice, and exceed it.
TEST_P(LowBitDecodeTest, LargestSumsEqualReference) {
  constexpr size_t kBlock = 256, kCount = 4 * kBlock;
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const std::vector<uint8_t> largest =
        codec == LowBitCodec::kFp4    ? std::vector<uint8_t>{0x77, 0xFF}
        : codec == LowBitCodec::kInt2 ? std::vector<uint8_t>{0x55, 0xAA}
                                      : std::vector<uint8_t>{0x7F, 0x80};
    for (const size_t ranks : {2, 4, 8, 16}) {
      for (unsigned distance = 0; distance < 1200; distance += distance < 240 ? 60 : 1) {
        LowBitPacketCase c = SimilarPackets({codec, kBlock}, ranks, kCount, 0, 0, random_);
        for (size_t rank = 0; rank < ranks; ++rank) {
          for (size_t k = 0; k < 4; ++k) {
            const unsigned from_smallest = rank == distance % ranks ? 0 : distance + k;
            c.scales[rank][k] = static_cast<uint16_t>((127 << 7) + from_smallest);
          }
          std::fill(c.codes[rank].begin(), c.codes[rank].end(), largest[distance % 2]);
        }
        ExpectSameAverage(c, DataType::kF32, true, false, Edge::kHigh);
      }
    }
  }
}

TEST_P(LowBitDecodeTest, BlocksWithOtherScalesEqualReference) {
  constexpr size_t kBlock = 256, kCount = 12 * kBlock;
  // Zero, subnormal, the smallest and the largest normal, infinite, NaN, and negative ones.
  constexpr uint16_t kOthers[] = {0,      0x0001, 0x0080, 0x7F7F, 0x7F80,
                                  0x7FC0, 0x8000, 0xBF80, 0xFFC0};
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const size_t ranks : {2, 8, 11}) {
      for (const uint16_t other : kOthers) {
        for (const bool is_of_all : {false, true}) {
          LowBitPacketCase c = SimilarPackets({codec, kBlock}, ranks, kCount, 0, 1, random_);
          for (const size_t at : {size_t{0}, size_t{4}, size_t{random_() % 12}, size_t{11}}) {
            for (std::vector<uint16_t>& scales : c.scales)
              scales[at] = is_of_all ? other : scales[at];
            c.scales[random_() % ranks][at] = other;
          }
          ExpectSameAverage(c, DataType::kF32, ranks == 8, false, Edge::kHigh);
          ExpectSameReduce(c, std::nullopt, DataType::kF32, false, false, false, Edge::kHigh);
        }
      }
    }
  }
}

TEST_P(LowBitDecodeTest, SumsOfAllMagnitudesOfScalesEqualReference) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (int exponent = -126; exponent <= 126; ++exponent) {
      for (const size_t ranks : {2, 5, 8}) {
        const LowBitPacketCase c =
            SimilarPackets({codec, 256}, ranks, 1024, static_cast<unsigned>(exponent), 1, random_);
        ExpectSameAverage(c, DataType::kF32, exponent % 2 == 0, false, Edge::kHigh);
      }
    }
  }
}

// A sum is -0 where all values are.
TEST_P(LowBitDecodeTest, SumsKeepNegativeZeros) {
  constexpr size_t kCount = 1024, kAt = 700;
  for (const size_t ranks : {2, 8, 9}) {
    for (const size_t others : {size_t{0}, ranks - 1, ranks}) {
      LowBitPacketCase c = SimilarPackets({LowBitCodec::kFp4, 128}, ranks, kCount, 0, 1, random_);
      for (size_t rank = 0; rank < ranks; ++rank) {
        uint8_t& byte = c.codes[rank][kAt / 2];
        byte = static_cast<uint8_t>((byte & 0xF0) | (rank < others ? 8 : 0));
      }
      const LowBitOutcome sum = ExpectSameAverage(c, DataType::kF32, true, false, Edge::kHigh);
      const float value = reinterpret_cast<const float*>(sum.output.data())[kAt];
      EXPECT_EQ(std::signbit(value), others == ranks);
      EXPECT_EQ(value, 0);
    }
  }
}

TEST_P(LowBitDecodeTest, StreamedOutputsEqualReference) {
  constexpr size_t kCount = (size_t{2} << 20) + 4096 + 12;  // 4 MiB in 16 bits
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const DataType type : kAllTypes) {
      const LowBitPacketCase c =
          RandomLowBitPackets({codec, 128}, 1, kCount, Numbers::kOrdinary, random_);
      const LowBitPacketView packet = {c.scales[0].data(), c.minimums[0].data(), c.codes[0].data()};
      const size_t bytes = kCount * BytesOf(type);
      std::unique_ptr<void, Free> actual(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      Bytes expected(bytes);
      reference::LowBitDecode(packet, c.format, kCount, nullptr, type, expected.data());
      cpu::LowBitDecode(packet, c.format, kCount, nullptr, type, actual.get());
      EXPECT_TRUE(SameBytes(actual.get(), expected.data(), bytes));
    }
  }
}

TEST_P(LowBitDecodeTest, StreamedSumsEqualReference) {
  constexpr size_t kCount = (size_t{1} << 20) + 4096 + 12;  // 4 MiB in fp32
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const LowBitPacketCase c = SimilarPackets({codec, 256}, 2, kCount, 0, 3, random_);
    std::vector<LowBitPacketView> packets;
    for (size_t rank = 0; rank < 2; ++rank) {
      packets.push_back({c.scales[rank].data(), c.minimums[rank].data(), c.codes[rank].data()});
    }
    const LowBitReduceInput in = {.packets = packets.data(), .ranks = 2, .count = kCount};
    std::unique_ptr<void, Free> actual(std::aligned_alloc(64, (kCount / 16 + 1) * 64));
    std::vector<float> expected(kCount);
    reference::LowBitAverage(in, c.format, expected.data());
    cpu::LowBitAverage(in, c.format, actual.get());
    EXPECT_TRUE(SameBytes(actual.get(), expected.data(), kCount * sizeof(float)));
  }
}

ONEBIT_TEST_EACH_TARGET(LowBitDecodeTest);

}  // namespace
}  // namespace onebit::kernels
