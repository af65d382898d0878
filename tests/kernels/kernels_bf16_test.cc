// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers as bf16: the scalar oracle against numbers computed by hand, and every instruction set
// against the oracle.
#include "kernels/bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

using Codes = std::vector<uint16_t>;

struct Kernels {
  decltype(&cpu::Bf16Compress) compress;
  decltype(&cpu::Bf16Reduce) reduce;
  decltype(&cpu::Bf16Average) average;
  decltype(&cpu::Bf16AddDelta) add_delta;
};
constexpr Kernels kCpu = {cpu::Bf16Compress, cpu::Bf16Reduce, cpu::Bf16Average, cpu::Bf16AddDelta};
constexpr Kernels kReference = {reference::Bf16Compress, reference::Bf16Reduce,
                                reference::Bf16Average, reference::Bf16AddDelta};

// All that a call returns and writes.
struct Outcome {
  LowBitResult result;
  Bytes written;   // codes, or an output
  Bytes residual;  // or what is held

  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.result.nonfinite_blocks == b.result.nonfinite_blocks &&
           a.result.is_finite == b.result.is_finite && a.written == b.written &&
           a.residual == b.residual;
  }
};

Codes CodesOf(const Outcome& outcome) {
  Codes codes(outcome.written.size() / 2);
  if (!codes.empty()) std::memcpy(codes.data(), outcome.written.data(), outcome.written.size());
  return codes;
}

// FORMAT.md does not specify the residual of an element that is not finite.
void ClearUnspecifiedElements(DataType type, Outcome* outcome) {
  const Codes codes = CodesOf(*outcome);
  const size_t bytes = BytesOf(type);
  for (size_t i = 0; i < codes.size() && !outcome->residual.empty(); ++i) {
    if (codes[i] == kBf16Nan) std::fill_n(outcome->residual.begin() + i * bytes, bytes, 0);
  }
}

// Calls on memory that ends, or begins, at a guard page.
class Runner {
 public:
  // `bytes` limits each input and output.
  explicit Runner(size_t bytes = size_t{1} << 20) {
    for (auto* memory : {&input_, &residual_in_, &residual_, &mask_, &output_}) {
      *memory = std::make_unique<GuardedMemory>(bytes);
    }
    for (auto& packet : packets_) packet = std::make_unique<GuardedMemory>(bytes);
  }

  Outcome Compress(const Kernels& kernels, CompressInput in, const Bytes& input,
                   const std::optional<Bytes>& mask, const std::optional<Bytes>& residual,
                   bool is_in_place, Edge edge) {
    in.input = input_->Place(input, edge);
    in.mask = mask ? mask_->Place(*mask, edge) : nullptr;
    return Encode(&in, residual, is_in_place, edge,
                  [&](LowBitPacket out) { return kernels.compress(in, out); });
  }

  Outcome Reduce(const Kernels& kernels, LowBitReduceInput in, const std::vector<Codes>& packets,
                 const std::optional<Bytes>& mask, const std::optional<Bytes>& residual,
                 bool is_in_place, Edge edge) {
    const auto views = Place(packets, edge, &in);
    in.mask = mask ? mask_->Place(*mask, edge) : nullptr;
    return Encode(&in, residual, is_in_place, edge,
                  [&](LowBitPacket out) { return kernels.reduce(in, out); });
  }

  Outcome Average(const Kernels& kernels, LowBitReduceInput in, const std::vector<Codes>& packets,
                  const std::optional<Bytes>& mask, Edge edge) {
    const auto views = Place(packets, edge, &in);
    in.mask = mask ? mask_->Place(*mask, edge) : nullptr;
    return Decode(in.count, in.output_type, edge,
                  [&](void* output) { return kernels.average(in, output); });
  }

  Outcome AddDelta(const Kernels& kernels, const Codes& packet, DataType type,
                   const std::optional<Bytes>& mask, const Bytes& held, bool is_in_place,
                   Edge edge) {
    LowBitReduceInput placed;
    LowBitDeltaInput in = {.packet = Place({packet}, edge, &placed)[0],
                           .held_in = reinterpret_cast<float*>(input_->Place(held, edge)),
                           .mask = mask ? mask_->Place(*mask, edge) : nullptr,
                           .count = packet.size(),
                           .output_type = type};
    in.held_out = is_in_place
                      ? const_cast<float*>(in.held_in)
                      : reinterpret_cast<float*>(residual_->Place(Bytes(held.size(), 0xEE), edge));
    LowBitDeltaInput alone = in;  // without an output
    Bytes held_alone(held.size() + 1);
    alone.held_out = reinterpret_cast<float*>(held_alone.data());
    const LowBitResult result_alone = kernels.add_delta(alone, nullptr);
    Outcome outcome =
        Decode(in.count, type, edge, [&](void* output) { return kernels.add_delta(in, output); });
    const auto* bytes = reinterpret_cast<const uint8_t*>(in.held_out);
    outcome.residual.assign(bytes, bytes + held.size());
    held_alone.pop_back();
    MakeNansEqual(DataType::kF32, &outcome.residual);
    MakeNansEqual(DataType::kF32, &held_alone);
    EXPECT_EQ(held_alone, outcome.residual) << "without an output";
    EXPECT_EQ(result_alone.is_finite, outcome.result.is_finite) << "without an output";
    return outcome;
  }

 private:
  static constexpr size_t kMostRanks = 9;

  std::vector<LowBitPacketView> Place(const std::vector<Codes>& packets, Edge edge,
                                      LowBitReduceInput* in) {
    views_.clear();
    for (size_t rank = 0; rank < packets.size(); ++rank) {
      views_.push_back(
          {.codes = reinterpret_cast<const uint8_t*>(packets_[rank]->Place(packets[rank], edge))});
    }
    in->packets = views_.data();
    in->ranks = packets.size();
    in->count = packets[0].size();
    return views_;
  }

  template <class In, class Call>
  Outcome Encode(In* in, const std::optional<Bytes>& residual, bool is_in_place, Edge edge,
                 const Call& call) {
    if (residual) {
      in->residual_in = residual_in_->Place(*residual, edge);
      in->residual_out = is_in_place ? const_cast<void*>(in->residual_in)
                                     : residual_->Place(Bytes(residual->size(), 0xEE), edge);
    }
    auto* const codes = reinterpret_cast<uint8_t*>(output_->Place(Codes(in->count, 0xEEEE), edge));
    Outcome outcome;
    outcome.result = call(LowBitPacket{.codes = codes});
    outcome.written.assign(codes, codes + 2 * in->count);
    if (residual) {
      const auto* bytes = static_cast<const uint8_t*>(in->residual_out);
      outcome.residual.assign(bytes, bytes + residual->size());
      ClearUnspecifiedElements(in->residual_type, &outcome);
    }
    return outcome;
  }

  template <class Call>
  Outcome Decode(size_t count, DataType type, Edge edge, const Call& call) {
    const size_t bytes = count * BytesOf(type);
    uint8_t* const output = output_->Place(Bytes(bytes, 0xEE), edge);
    Outcome outcome;
    outcome.result = call(output);
    outcome.written.assign(output, output + bytes);
    MakeNansEqual(type, &outcome.written);
    return outcome;
  }

  std::unique_ptr<GuardedMemory> input_, residual_in_, residual_, mask_, output_;
  std::array<std::unique_ptr<GuardedMemory>, kMostRanks> packets_;
  std::vector<LowBitPacketView> views_;
};

Bytes BytesOfFloats(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class Bf16Test : public EachTarget {
 protected:
  std::optional<Bytes> MaskIf(bool is_masked, size_t count) {
    if (!is_masked) return std::nullopt;
    return RandomBits(count, random_);
  }
  std::optional<Bytes> ResidualIf(bool has_residual, DataType type, Numbers numbers, size_t count) {
    if (!has_residual) return std::nullopt;
    return RandomElements(type, numbers, count, random_);
  }
  std::vector<Codes> RandomPackets(Numbers numbers, size_t ranks, size_t count) {
    std::vector<Codes> packets(ranks, Codes(count));
    for (Codes& packet : packets) {
      for (uint16_t& code : packet) code = RandomBf16(numbers, random_);
    }
    return packets;
  }

  Outcome ExpectSameCompress(const CompressInput& in, const Bytes& input, bool is_masked,
                             const std::optional<Bytes>& residual, bool is_in_place, Edge edge) {
    const std::optional<Bytes> mask = MaskIf(is_masked, in.count);
    const Outcome expected = runner_.Compress(kReference, in, input, mask, residual, false, edge);
    EXPECT_TRUE(runner_.Compress(kCpu, in, input, mask, residual, is_in_place, edge) == expected)
        << in.count << " of type " << static_cast<int>(in.input_type) << " value type "
        << static_cast<int>(in.scale_type) << " residual "
        << (residual ? static_cast<int>(in.residual_type) : -1);
    return expected;
  }

  // Everything that packets of a number of ranks can become.
  void ExpectSameOfPackets(const std::vector<Codes>& packets, DataType type, Numbers numbers,
                           bool is_sum, bool is_masked, Edge edge) {
    const size_t count = packets[0].size();
    SCOPED_TRACE(std::to_string(packets.size()) + " packets of " + std::to_string(count) +
                 " to type " + std::to_string(static_cast<int>(type)));
    const std::optional<Bytes> mask = MaskIf(is_masked, count);
    LowBitReduceInput in = {.output_type = type, .is_sum = is_sum};
    EXPECT_TRUE(runner_.Average(kCpu, in, packets, mask, edge) ==
                runner_.Average(kReference, in, packets, mask, edge));
    for (const int residual_type : {-1, 0, 1}) {
      in.residual_type = residual_type == 1 ? DataType::kBf16 : DataType::kF32;
      const auto residual = ResidualIf(residual_type >= 0, in.residual_type, numbers, count);
      EXPECT_TRUE(runner_.Reduce(kCpu, in, packets, mask, residual, is_sum, edge) ==
                  runner_.Reduce(kReference, in, packets, mask, residual, false, edge));
    }
    const Bytes held = RandomElements(DataType::kF32, numbers, count, random_);
    EXPECT_TRUE(runner_.AddDelta(kCpu, packets[0], type, mask, held, is_sum, edge) ==
                runner_.AddDelta(kReference, packets[0], type, mask, held, false, edge));
  }

  Runner runner_;
  Random random_{31};
};

TEST_P(Bf16Test, RoundsToNearestEven) {
  const struct {
    uint32_t z;
    uint16_t code;
  } cases[] = {{0x3F800000, 0x3F80},                          // 1
               {0x3F808000, 0x3F80},                          // a tie, to even
               {0x3F818000, 0x3F82},                          // a tie, to even
               {0x3F807FFF, 0x3F80},                          // just below
               {0x3F808001, 0x3F81},                          // just above
               {0xBF818000, 0xBF82},                          // the same, negative
               {0x3FFF8000, 0x4000},                          // a carry into the exponent
               {0x00000000, 0x0000},   {0x80000000, 0x8000},  // zeros keep their signs
               {0x00000001, 0x0000},   {0x80000001, 0x8000},  // the smallest number
               {0x00008000, 0x0000},   {0x00018000, 0x0002},  // ties of subnormal numbers
               {0x00210001, 0x0021},   {0x007FFFFF, 0x0080},  // to the smallest normal one
               {0x7F7F7FFF, 0x7F7F},   {0xFF7F7FFF, 0xFF7F},  // the largest
               {0x7F7F8000, kBf16Nan}, {0xFF7F8000, kBf16Nan}, {0x7F7FFFFF, kBf16Nan},
               {0x7F800000, kBf16Nan}, {0xFF800000, kBf16Nan}, {0x7FC00000, kBf16Nan},
               {0x7F800001, kBf16Nan}, {0xFFFFFFFF, kBf16Nan}};
  for (const Kernels& kernels : {kReference, kCpu}) {
    for (const auto& c : cases) {
      const Bytes input = BytesOfFloats({std::bit_cast<float>(c.z)});
      const Outcome outcome = runner_.Compress(kernels, {.count = 1}, input, std::nullopt,
                                               std::nullopt, false, Edge::kHigh);
      EXPECT_EQ(CodesOf(outcome), Codes{c.code}) << std::hex << c.z;
      EXPECT_EQ(outcome.result.nonfinite_blocks, c.code == kBf16Nan ? 1u : 0u) << std::hex << c.z;
      EXPECT_EQ(outcome.result.is_finite, c.code != kBf16Nan) << std::hex << c.z;
    }
  }
}

// Every upper half, with a lower half of its own.
TEST_P(Bf16Test, EqualsReferenceAtEveryUpperHalf) {
  std::vector<float> all;
  for (uint32_t upper = 0; upper <= 0xFFFF; ++upper) {
    all.push_back(std::bit_cast<float>(upper << 16 | static_cast<uint16_t>(random_())));
  }
  const Bytes input = BytesOfFloats(all);
  const CompressInput in = {.count = all.size()};
  const Outcome plain = ExpectSameCompress(in, input, false, std::nullopt, false, Edge::kHigh);
  EXPECT_GE(plain.result.nonfinite_blocks, 2u * 128);
  const Codes codes = CodesOf(plain);
  for (size_t i = 0; i < all.size(); ++i) {
    const float value = std::bit_cast<float>(uint32_t{codes[i]} << 16);
    if (codes[i] == kBf16Nan) continue;
    // An element loses at most 2^-9 of the power of two that it reaches.
    EXPECT_LE(std::fabs(all[i] - value), std::ldexp(1.0f, std::max(std::ilogb(all[i]), -126) - 8));
  }
  const Bytes zeros(all.size() * sizeof(float));
  for (const DataType value_type : kAllTypes) {
    ExpectSameCompress({.count = all.size(), .scale_type = value_type}, input, true, zeros, true,
                       Edge::kLow);
  }
}

TEST_P(Bf16Test, CompressEqualsReferenceAtAllShortCounts) {
  for (const DataType type : kAllTypes) {
    for (size_t count = 0; count <= 300; ++count) {
      const bool has_residual = count % 3 != 0;
      const DataType residual_type = count % 2 == 0 ? DataType::kF32 : DataType::kBf16;
      ExpectSameCompress({.input_type = type,
                          .residual_type = residual_type,
                          .count = count,
                          .scale_type = kAllTypes[count % 5 % 3]},
                         RandomElements(type, Numbers::kOrdinary, count, random_), count % 5 == 0,
                         ResidualIf(has_residual, residual_type, Numbers::kOrdinary, count),
                         count % 7 == 0, count % 4 == 0 ? Edge::kLow : Edge::kHigh);
    }
  }
}

TEST_P(Bf16Test, PacketsEqualReferenceAtAllShortCounts) {
  for (const DataType type : kAllTypes) {
    for (size_t count = 0; count <= 150; ++count) {
      ExpectSameOfPackets(RandomPackets(Numbers::kOrdinary, 1 + count % 9, count), type,
                          Numbers::kOrdinary, count % 2 == 0, count % 3 == 0,
                          count % 4 == 0 ? Edge::kLow : Edge::kHigh);
    }
  }
}

TEST_P(Bf16Test, EqualsReferenceAroundParts) {
  for (const size_t count : {1023, 1024, 1025, 2048, 4096, 5003}) {
    ExpectSameCompress(
        {.count = count}, RandomElements(DataType::kF32, Numbers::kOrdinary, count, random_),
        count % 2 == 0, RandomElements(DataType::kF32, Numbers::kOrdinary, count, random_), true,
        Edge::kHigh);
    for (const size_t ranks : {1, 2, 8}) {
      ExpectSameOfPackets(RandomPackets(Numbers::kOrdinary, ranks, count), DataType::kF32,
                          Numbers::kOrdinary, ranks == 2, count % 2 == 1, Edge::kHigh);
    }
  }
}

TEST_P(Bf16Test, EqualsReferenceAtAllMagnitudes) {
  for (const Numbers numbers : kAllNumbers) {
    for (const DataType type : kAllTypes) {
      for (const size_t count : {1, 37, 500}) {
        for (const bool is_bf16 : {false, true}) {
          const DataType residual_type = is_bf16 ? DataType::kBf16 : DataType::kF32;
          ExpectSameCompress({.input_type = type,
                              .residual_type = residual_type,
                              .count = count,
                              .scale_type = type},
                             RandomElements(type, numbers, count, random_), count == 37,
                             RandomElements(residual_type, numbers, count, random_), is_bf16,
                             Edge::kHigh);
        }
        for (const size_t ranks : {1, 3, 9}) {
          ExpectSameOfPackets(RandomPackets(numbers, ranks, count), type, numbers, ranks == 3,
                              count == 37, Edge::kHigh);
        }
      }
    }
  }
}

// Large outputs go past the caches. Memory is aligned as the library's is.
TEST_P(Bf16Test, StreamedOutputsEqualReference) {
  constexpr size_t kCount = (size_t{2} << 20) + 4096 + 12;  // 4 MiB of codes
  runner_ = Runner(kCount * sizeof(float));
  Bytes input = RandomElements(DataType::kF32, Numbers::kOrdinary, kCount, random_);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(input.data() + kCount / 2 * sizeof(float), &nan, sizeof(float));
  for (const DataType residual_type : {DataType::kF32, DataType::kBf16}) {
    const Bytes residual = RandomElements(residual_type, Numbers::kOrdinary, kCount, random_);
    const Outcome outcome =
        ExpectSameCompress({.residual_type = residual_type, .count = kCount}, input, false,
                           residual, residual_type == DataType::kF32, Edge::kLow);
    EXPECT_EQ(outcome.result.nonfinite_blocks, 1u);
  }
  ExpectSameOfPackets(RandomPackets(Numbers::kOrdinary, 2, kCount), DataType::kF32,
                      Numbers::kOrdinary, false, false, Edge::kLow);
}

TEST_P(Bf16Test, EveryCodeIsDecoded) {
  Codes all(65'536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const Kernels& kernels : {kReference, kCpu}) {
    const Outcome outcome =
        runner_.Average(kernels, {.is_sum = true}, {all}, std::nullopt, Edge::kHigh);
    EXPECT_EQ(outcome.result.nonfinite_blocks, 2u * 128);
    EXPECT_FALSE(outcome.result.is_finite);
    std::vector<uint32_t> bits(all.size());
    std::memcpy(bits.data(), outcome.written.data(), outcome.written.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const uint32_t wide = static_cast<uint32_t>(i) << 16;
      const bool is_nan = (wide & 0x7FFFFFFF) > 0x7F800000;
      EXPECT_EQ(bits[i], is_nan ? 0x7FC00000 : wide);
    }
  }
}

// The sum of a rank's NaN is NaN for its own element alone, and counts once.
TEST_P(Bf16Test, NonfiniteElementsAreLocal) {
  constexpr size_t kCount = 2100, kBad = 1030;
  for (const size_t ranks : {1, 3, 9}) {
    std::vector<Codes> packets = RandomPackets(Numbers::kOrdinary, ranks, kCount);
    packets[0][kBad] = packets[ranks - 1][kBad] = kBf16Nan;
    for (const Kernels& kernels : {kReference, kCpu}) {
      const Outcome average = runner_.Average(kernels, {}, packets, std::nullopt, Edge::kHigh);
      EXPECT_EQ(average.result.nonfinite_blocks, 1u);
      EXPECT_FALSE(average.result.is_finite);
      const auto* values = reinterpret_cast<const float*>(average.written.data());
      for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(std::isnan(values[i]), i == kBad);
      const Outcome reduced =
          runner_.Reduce(kernels, {}, packets, std::nullopt, std::nullopt, false, Edge::kHigh);
      EXPECT_EQ(reduced.result.nonfinite_blocks, 1u);
      const Codes codes = CodesOf(reduced);
      for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(codes[i] == kBf16Nan, i == kBad);
    }
  }
}

// A value that overflows fp16 is finite in its packet, and not in its residual.
TEST_P(Bf16Test, ValuesThatOverflowTheirTypeAreReported) {
  const Bytes input = BytesOfFloats({70'000.0f, 1.0f});
  const CompressInput in = {.count = 2, .scale_type = DataType::kF16};
  for (const Kernels& kernels : {kReference, kCpu}) {
    EXPECT_TRUE(runner_.Compress(kernels, in, input, std::nullopt, std::nullopt, false, Edge::kHigh)
                    .result.is_finite);
    const Outcome outcome =
        runner_.Compress(kernels, in, input, std::nullopt, Bytes(8), false, Edge::kHigh);
    EXPECT_FALSE(outcome.result.is_finite);
    EXPECT_EQ(outcome.result.nonfinite_blocks, 0u);
  }
}

ONEBIT_TEST_EACH_TARGET(Bf16Test);

}  // namespace
}  // namespace onebit::kernels
