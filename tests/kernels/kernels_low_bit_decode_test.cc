// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit packets to numbers or to packets: every instruction set against the scalar oracle.
#include <gtest/gtest.h>

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

TEST_P(LowBitDecodeTest, StreamedOutputsEqualReference) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
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

ONEBIT_TEST_EACH_TARGET(LowBitDecodeTest);

}  // namespace
}  // namespace onebit::kernels
