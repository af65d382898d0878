// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to low-bit packets: every instruction set against the scalar oracle, byte for byte.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "kernels/low_bit.h"
#include "kernels/reference/low_bit_scale.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr Draws kDraws = {
    .seed = 0x0123456789ABCDEF, .first = 4093, .epoch = 3, .tensor = 7, .stream = 65538};

struct Kind {
  LowBitCodec codec;
  DataType input_type;
  std::optional<DataType> residual_type;
  bool is_masked;
};

struct CompressNumbers {
  Bytes input;
  std::optional<Bytes> mask;
  std::optional<Bytes> residual;
};

CompressNumbers RandomNumbers(const Kind& kind, size_t count, Numbers numbers, Random& random) {
  CompressNumbers n;
  n.input = RandomElements(kind.input_type, numbers, count, random);
  if (kind.residual_type) n.residual = RandomElements(*kind.residual_type, numbers, count, random);
  if (kind.is_masked) n.mask = RandomBits(count, random);
  return n;
}

class LowBitCompressTest : public EachTarget {
 protected:
  // Returns what the oracle does.
  LowBitOutcome ExpectSame(const Kind& kind, LowBitFormat format, size_t count,
                           const CompressNumbers& n, Edge edge, bool is_in_place = false,
                           DataType value_type = DataType::kF32) {
    CompressInput in = {.input_type = kind.input_type, .count = count, .scale_type = value_type};
    if (kind.residual_type) in.residual_type = *kind.residual_type;
    const LowBitOutcome expected = runner_.Compress(kReferenceLowBit, in, format, kDraws, n.input,
                                                    n.mask, n.residual, false, edge);
    const LowBitOutcome actual = runner_.Compress(kCpuLowBit, in, format, kDraws, n.input, n.mask,
                                                  n.residual, is_in_place, edge);
    EXPECT_TRUE(actual == expected)
        << "codec " << static_cast<int>(kind.codec) << " block " << format.block << " count "
        << count << " input type " << static_cast<int>(kind.input_type) << " residual type "
        << (kind.residual_type ? static_cast<int>(*kind.residual_type) : -1)
        << (kind.is_masked ? " masked" : "") << " scales " << (actual.scales == expected.scales)
        << " minimums " << (actual.minimums == expected.minimums) << " codes "
        << (actual.codes == expected.codes) << " residuals "
        << (actual.residual == expected.residual) << " nonfinite " << actual.result.nonfinite_blocks
        << " for " << expected.result.nonfinite_blocks << " finite " << actual.result.is_finite
        << " for " << expected.result.is_finite;
    return expected;
  }

  template <class Check>
  void ForAllKinds(const Check& check) {
    for (const LowBitCodec codec : kAllLowBitCodecs) {
      for (const DataType input_type : kAllTypes) {
        for (const bool is_masked : {false, true}) {
          check(Kind{codec, input_type, std::nullopt, is_masked});
          if (!HasResidual(codec)) continue;
          check(Kind{codec, input_type, DataType::kF32, is_masked});
          check(Kind{codec, input_type, DataType::kBf16, is_masked});
        }
      }
    }
  }

  LowBitRunner runner_;
  Random random_{11};
};

TEST_P(LowBitCompressTest, EqualsReferenceAtAllShortCounts) {
  ForAllKinds([&](const Kind& kind) {
    const std::vector<size_t> blocks = ShortBlocks(kind.codec);
    for (size_t count = 0; count <= 513; ++count) {
      const LowBitFormat format = {kind.codec, blocks[count % blocks.size()]};
      const CompressNumbers n = RandomNumbers(kind, count, Numbers::kOrdinary, random_);
      ExpectSame(kind, format, count, n, Edge::kHigh, count % 2 == 0);
      if (count % 3 == 0) ExpectSame(kind, format, count, n, Edge::kLow, count % 2 == 1);
    }
  });
}

TEST_P(LowBitCompressTest, EqualsReferenceAroundBlocks) {
  ForAllKinds([&](const Kind& kind) {
    std::vector<size_t> blocks = ShortBlocks(kind.codec);
    blocks.insert(blocks.end(), {512, 1000, 4096, 4100, 8192});
    for (const size_t block : blocks) {
      if (block < 5) continue;  // CountsAround needs more
      for (const size_t count : CountsAround(block)) {
        ExpectSame(kind, {kind.codec, block}, count,
                   RandomNumbers(kind, count, Numbers::kOrdinary, random_), Edge::kHigh);
      }
    }
  });
}

TEST_P(LowBitCompressTest, EqualsReferenceInLongBlocks) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const bool is_masked : {false, true}) {
      Kind kind = {codec, DataType::kF32, std::nullopt, is_masked};
      if (HasResidual(codec) && is_masked) kind.residual_type = DataType::kF32;
      for (const size_t count : {65535, 65536, 131077}) {
        for (const Numbers numbers : {Numbers::kOrdinary, Numbers::kTiny, Numbers::kHuge}) {
          ExpectSame(kind, {codec, 65536}, count, RandomNumbers(kind, count, numbers, random_),
                     Edge::kHigh, count == 65536);
        }
      }
    }
  }
}

TEST_P(LowBitCompressTest, EqualsReferenceAtAllMagnitudes) {
  size_t nonfinite_blocks = 0;
  ForAllKinds([&](const Kind& kind) {
    for (const Numbers numbers : kAllNumbers) {
      for (const size_t block : {12, 32, 128, 4096}) {
        for (const size_t count : {1, 63, 200, 4200}) {
          const CompressNumbers n = RandomNumbers(kind, count, numbers, random_);
          const LowBitOutcome outcome =
              ExpectSame(kind, {kind.codec, block}, count, n, Edge::kHigh);
          nonfinite_blocks += outcome.result.nonfinite_blocks;
        }
      }
    }
  });
  EXPECT_GT(nonfinite_blocks, 0u);
}

// Enough blocks for later ones to be read while earlier ones are encoded, a few of them not finite.
TEST_P(LowBitCompressTest, EqualsReferenceWhereBlocksTakeTurns) {
  constexpr size_t kCount = 6003;
  ForAllKinds([&](const Kind& kind) {
    const size_t bytes = BytesOf(kind.input_type);
    for (const size_t block : {16, 48, 64, 192, 512, 1024}) {
      CompressNumbers n = RandomNumbers(kind, kCount, Numbers::kOrdinary, random_);
      ExpectSame(kind, {kind.codec, block}, kCount, n, Edge::kHigh);
      for (int k = 0; k < 3; ++k) {
        memset(n.input.data() + random_() % kCount * bytes, 0xFF, bytes);  // NaN
      }
      const LowBitOutcome outcome = ExpectSame(kind, {kind.codec, block}, kCount, n, Edge::kHigh);
      EXPECT_TRUE(kind.is_masked || outcome.result.nonfinite_blocks > 0) << block;
    }
  });
}

// All exponents that an fp32 number can have, in blocks of nearly equal numbers.
TEST_P(LowBitCompressTest, EqualsReferenceAtAllExponents) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (uint32_t exponent = 0; exponent < 255; ++exponent) {
      Bytes input(64 * sizeof(float));
      auto* bits = reinterpret_cast<uint32_t*>(input.data());
      for (size_t i = 0; i < 64; ++i) bits[i] = (random_() & 0x807FFFFFu) | (exponent << 23);
      ExpectSame({codec, DataType::kF32, std::nullopt, false}, {codec, 16}, 64, {input, {}, {}},
                 Edge::kHigh);
    }
  }
}

// Multiples of fractions of the scale: all thresholds, and their neighbours on both sides.
TEST_P(LowBitCompressTest, EqualsReferenceAtThresholds) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    std::vector<float> x;
    for (const float threshold : {0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.25f, 1.5f, 1.75f, 2.0f, 2.5f,
                                  3.0f, 3.5f, 4.0f, 5.0f, 6.0f}) {
      for (const float sign : {-1.0f, 1.0f}) {
        for (const float towards : {-100.0f, sign * threshold, 100.0f}) {
          x.push_back(std::nextafter(sign * threshold, towards));
        }
      }
    }
    x.push_back(codec == LowBitCodec::kInt8 ? 127.0f : 6.0f);
    x.push_back(-0.0f);
    while (x.size() % 4 != 0) x.push_back(-1);
    Bytes input(x.size() * sizeof(float));
    memcpy(input.data(), x.data(), input.size());
    for (const auto residual_type : {std::optional<DataType>(), std::optional(DataType::kF32)}) {
      if (residual_type && !HasResidual(codec)) continue;
      CompressNumbers n = {input, {}, {}};
      if (residual_type) n.residual = Bytes(input.size(), 0);
      ExpectSame({codec, DataType::kF32, residual_type, false}, {codec, x.size()}, x.size(), n,
                 Edge::kHigh);
    }
  }
}

// Blocks with the least scale, whose inverse overflows when it is multiplied by four, and blocks
// that are too small for it.
TEST_P(LowBitCompressTest, EqualsReferenceAtTheLeastScale) {
  constexpr size_t kCount = 8192, kBlock = 128;
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const float largest = codec == LowBitCodec::kFp4 ? 6 : 127;
    for (const float unit : {1.0f, 0x1p-1f, 0x1p-8f, 0x1p-22f}) {
      Bytes input(kCount * sizeof(float));
      auto* x = reinterpret_cast<float*>(input.data());
      for (size_t i = 0; i < kCount; ++i) {
        const float units = static_cast<float>(i % kBlock) * largest / kBlock;
        x[i] = (i % kBlock == 0 ? largest
                : i % 2 == 0    ? units
                                : -units) *
               unit * reference::kMinLowBitScale;
      }
      for (const auto residual_type : {std::optional<DataType>(), std::optional(DataType::kF32)}) {
        if (residual_type && !HasResidual(codec)) continue;
        CompressNumbers n = {input, {}, {}};
        if (residual_type) n.residual = Bytes(input.size(), 0);
        ExpectSame({codec, DataType::kF32, residual_type, false}, {codec, kBlock}, kCount, n,
                   Edge::kHigh);
      }
    }
  }
}

// One bad element makes its block NaN, and no other.
TEST_P(LowBitCompressTest, NonfiniteBlocksAreLocal) {
  const float bad_numbers[] = {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               0x1p127f,
                               -0x1p127f,
                               std::nextafter(0x1p127f, 0.0f)};
  constexpr size_t kCount = 600;
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    for (const size_t block : {12, 32, 128, 256, 8192}) {
      for (const float bad : bad_numbers) {
        for (const bool is_masked : {false, true}) {
          Kind kind = {codec, DataType::kF32, std::nullopt, is_masked};
          CompressNumbers n = RandomNumbers(kind, kCount, Numbers::kOrdinary, random_);
          const size_t at = random_() % kCount;
          memcpy(n.input.data() + at * sizeof(float), &bad, sizeof(float));
          if (is_masked) n.mask->at(at / 8) &= static_cast<uint8_t>(~(1u << (at % 8)));
          const LowBitOutcome outcome = ExpectSame(kind, {codec, block}, kCount, n, Edge::kHigh);
          const bool is_good = is_masked || std::abs(bad) < 0x1p127f;
          // The mean square of a short block of such numbers is in range; a scale is, too, except
          // where the number is alone.
          EXPECT_EQ(outcome.result.nonfinite_blocks, is_good ? 0u : 1u)
              << static_cast<int>(codec) << " " << block << " " << bad;
          EXPECT_EQ(outcome.result.is_finite, is_good);
          for (size_t k = 0; k < outcome.scales.size(); ++k) {
            EXPECT_EQ(outcome.scales[k] == 0x7FC0, !is_good && k == at / block);
          }
        }
      }
    }
  }
}

// A root mean square may exceed the largest scale although every number is in range.
TEST_P(LowBitCompressTest, ScaleBeyondItsLimitIsNotFinite) {
  for (const float number : {0x1p126f, 0x1.01p126f, 0x1.02p126f, 0x1.fp126f}) {
    Bytes input(32 * sizeof(float));
    for (size_t i = 0; i < 32; ++i) reinterpret_cast<float*>(input.data())[i] = number;
    const LowBitOutcome outcome =
        ExpectSame({LowBitCodec::kInt2, DataType::kF32, std::nullopt, false},
                   {LowBitCodec::kInt2, 32}, 32, {input, {}, {}}, Edge::kHigh);
    EXPECT_EQ(outcome.result.nonfinite_blocks, number < 0x1.02p126f ? 0u : 1u) << number;
  }
}

TEST_P(LowBitCompressTest, ResidualsAnswerForRoundedValues) {
  int overflows = 0;
  for (const DataType value_type : {DataType::kF16, DataType::kBf16}) {
    ForAllKinds([&](const Kind& kind) {
      if (!kind.residual_type) return;
      for (const Numbers numbers : kAllNumbers) {
        for (const size_t count : {1, 64, 500}) {
          const CompressNumbers n = RandomNumbers(kind, count, numbers, random_);
          const LowBitOutcome outcome =
              ExpectSame(kind, {kind.codec, 64}, count, n, Edge::kHigh, false, value_type);
          overflows += !outcome.result.is_finite && outcome.result.nonfinite_blocks == 0 ? 1 : 0;
        }
      }
    });
  }
  EXPECT_GT(overflows, 0) << "no value is too large for its type";
}

TEST_P(LowBitCompressTest, ResidualsNeedNotBeKept) {
  constexpr size_t kCount = 5000;
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    if (!HasResidual(codec)) continue;
    const Bytes input = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
    const Bytes residual = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
    const CompressInput in = {
        .input = input.data(), .residual_in = residual.data(), .count = kCount};
    std::vector<uint16_t> scales[2], minimums[2];
    Bytes codes[2];
    for (int k = 0; k < 2; ++k) {
      scales[k].resize(BlockCount(kCount, 128));
      minimums[k].resize(BlockCount(kCount, 128));
      codes[k].resize(CodeBytes(codec, kCount));
      const auto compress = k == 0 ? reference::LowBitCompress : cpu::LowBitCompress;
      compress(in, {codec, 128}, kDraws, {scales[k].data(), minimums[k].data(), codes[k].data()});
    }
    EXPECT_EQ(scales[0], scales[1]);
    EXPECT_EQ(minimums[0], minimums[1]);
    EXPECT_EQ(codes[0], codes[1]);
  }
}

TEST_P(LowBitCompressTest, AllMaskedGivesZeros) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    Kind kind = {codec, DataType::kF32, std::nullopt, true};
    if (HasResidual(codec)) kind.residual_type = DataType::kF32;
    CompressNumbers n = RandomNumbers(kind, 100, Numbers::kOrdinary, random_);
    n.mask = Bytes(BitBytes(100), 0);
    const LowBitOutcome outcome = ExpectSame(kind, {codec, 32}, 100, n, Edge::kHigh);
    EXPECT_TRUE(outcome.result.is_finite);
    EXPECT_EQ(outcome.scales, std::vector<uint16_t>(4, 0));
    EXPECT_EQ(outcome.codes, Bytes(CodeBytes(codec, 100), 0));
    for (const uint16_t minimum : outcome.minimums) EXPECT_EQ(minimum, 0);
    for (const uint8_t byte : outcome.residual) EXPECT_EQ(byte, 0);
  }
}

// The counter of draws crosses 2^34, where its lower word is full.
TEST_P(LowBitCompressTest, DrawsContinueBeyondTheLowWord) {
  constexpr size_t kCount = 300;
  const Bytes input = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
  for (size_t offset = 0; offset < 9; ++offset) {
    Draws draws = kDraws;
    draws.first = (uint64_t{1} << 34) - 140 + offset;
    const CompressInput in = {.input = input.data(), .count = kCount};
    uint16_t scales[2][2];
    Bytes codes[2] = {Bytes(kCount), Bytes(kCount)};
    const LowBitFormat format = {LowBitCodec::kInt8Stochastic, 256};
    reference::LowBitCompress(in, format, draws, {scales[0], nullptr, codes[0].data()});
    cpu::LowBitCompress(in, format, draws, {scales[1], nullptr, codes[1].data()});
    EXPECT_EQ(codes[0], codes[1]) << offset;
  }
}

// ---- Arrays that bypass the caches

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

struct StreamedCase {
  std::unique_ptr<void, FreeMemory> codes, residual;
  std::vector<uint16_t> scales, minimums;
  size_t code_bytes, residual_bytes;

  StreamedCase(LowBitCodec codec, size_t block, size_t count)
      : scales(BlockCount(count, block)),
        minimums(BlockCount(count, block)),
        code_bytes(CodeBytes(codec, count)),
        residual_bytes(count * sizeof(float)) {
    codes.reset(std::aligned_alloc(64, (code_bytes + 63) / 64 * 64));
    residual.reset(std::aligned_alloc(64, (residual_bytes + 63) / 64 * 64));
  }
  LowBitPacket Packet() {
    return {scales.data(), minimums.data(), static_cast<uint8_t*>(codes.get())};
  }
};

TEST_P(LowBitCompressTest, StreamedOutputsEqualReference) {
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const size_t count = (size_t{4} << 20) * 8 / CodeBits(codec) + 4 * 4096 + 12;
    const size_t block = codec == LowBitCodec::kInt2 ? 4096 : 128;
    const Bytes input = RandomElements(DataType::kBf16, Numbers::kOrdinary, count, random_);
    const bool has_residual = HasResidual(codec);
    StreamedCase expected(codec, block, count), actual(codec, block, count);
    for (StreamedCase* c : {&expected, &actual}) {
      memset(c->residual.get(), 0, c->residual_bytes);
      const CompressInput in = {.input = input.data(),
                                .input_type = DataType::kBf16,
                                .residual_in = has_residual ? c->residual.get() : nullptr,
                                .residual_out = has_residual ? c->residual.get() : nullptr,
                                .count = count};
      const auto compress = c == &expected ? reference::LowBitCompress : cpu::LowBitCompress;
      EXPECT_TRUE(compress(in, {codec, block}, kDraws, c->Packet()).is_finite);
    }
    EXPECT_EQ(actual.scales, expected.scales);
    EXPECT_EQ(actual.minimums, expected.minimums);
    EXPECT_TRUE(SameBytes(actual.codes.get(), expected.codes.get(), expected.code_bytes));
    EXPECT_TRUE(SameBytes(actual.residual.get(), expected.residual.get(), expected.residual_bytes));
  }
}

ONEBIT_TEST_EACH_TARGET(LowBitCompressTest);

}  // namespace
}  // namespace onebit::kernels
