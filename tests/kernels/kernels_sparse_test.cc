// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to sparse packets and back: every instruction set against the scalar oracle, byte for
// byte, in memory with inaccessible neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/sparse.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

constexpr Draws kDraws = {
    .seed = 0x0123456789ABCDEF, .first = 4093, .epoch = 3, .tensor = 7, .stream = kSharedStream};

struct Kernels {
  decltype(&cpu::SparseCompress) compress;
  decltype(&cpu::SparseReduce) reduce;
  decltype(&cpu::SparseAverage) average;
};
constexpr Kernels kCpu = {cpu::SparseCompress, cpu::SparseReduce, cpu::SparseAverage};
constexpr Kernels kReference = {reference::SparseCompress, reference::SparseReduce,
                                reference::SparseAverage};

constexpr size_t kRanks = 3;

// All that a call returns and writes.
struct Outcome {
  size_t nonfinite_blocks = 0;
  bool is_finite = true;
  Bytes packet;
  Bytes residual;
  Bytes output;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::string Text(const Outcome& a, const Outcome& b) {
  return std::string("packet ") + (a.packet == b.packet ? "equal" : "DIFFERS") + ", residual " +
         (a.residual == b.residual ? "equal" : "DIFFERS") + ", output " +
         (a.output == b.output ? "equal" : "DIFFERS") + ", nonfinite " +
         std::to_string(a.nonfinite_blocks) + " for " + std::to_string(b.nonfinite_blocks) +
         ", finite " + std::to_string(a.is_finite) + " for " + std::to_string(b.is_finite);
}

// Replaces every NaN by one of them: their signs and payloads are not specified in outputs.
void MakeNansEqual(DataType type, Bytes* array) {
  for (size_t i = 0; i < array->size() / BytesOf(type); ++i) {
    uint32_t bits = 0;
    memcpy(&bits, array->data() + i * BytesOf(type), BytesOf(type));
    const uint32_t infinity = type == DataType::kF32   ? 0x7F800000
                              : type == DataType::kF16 ? 0x7C00
                                                       : 0x7F80;
    if ((bits & (type == DataType::kF32 ? 0x7FFFFFFF : 0x7FFF)) <= infinity) continue;
    memset(array->data() + i * BytesOf(type), 0xFF, BytesOf(type));
  }
}

struct Arrays {
  std::optional<Bytes> mask;
  std::optional<Bytes> residual;
};

class SparseTest : public EachTarget {
 protected:
  SparseTest() {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      packets_in_.push_back(std::make_unique<GuardedMemory>(kCapacity));
    }
  }

  template <class In>
  void PlaceResidual(const Arrays& arrays, bool is_in_place, Edge edge, In* in) {
    in->mask = arrays.mask ? mask_.Place(*arrays.mask, edge) : nullptr;
    if (!arrays.residual) return;
    in->residual_in = residual_in_.Place(*arrays.residual, edge);
    in->residual_out = is_in_place
                           ? const_cast<void*>(in->residual_in)
                           : residual_out_.Place(Bytes(arrays.residual->size(), 0xEE), edge);
  }

  // `call` writes a packet.
  template <class Call>
  Outcome TakePacket(SparseFormat format, size_t count, const void* residual_out,
                     size_t residual_bytes, Edge edge, const Call& call) {
    const size_t bytes = format.Bytes(count);
    uint8_t* packet = packet_out_.Place(Bytes(bytes, 0xEE), edge);
    const SparseResult result = call(packet);
    Outcome outcome = {.nonfinite_blocks = result.nonfinite_blocks,
                       .is_finite = result.is_finite,
                       .packet = Bytes(packet, packet + bytes),
                       .residual = {},
                       .output = {}};
    // Residuals are not specified in blocks that are not finite.
    if (residual_out != nullptr && result.nonfinite_blocks == 0) {
      const auto* residual = static_cast<const uint8_t*>(residual_out);
      outcome.residual.assign(residual, residual + residual_bytes);
    }
    return outcome;
  }

  Outcome Compress(const Kernels& kernels, CompressInput in, float decay, SparseFormat format,
                   const Bytes& input, const Arrays& arrays, bool is_in_place, Edge edge) {
    in.input = input_.Place(input, edge);
    PlaceResidual(arrays, is_in_place, edge, &in);
    return TakePacket(
        format, in.count, in.residual_out, arrays.residual ? arrays.residual->size() : 0, edge,
        [&](void* packet) { return kernels.compress(in, decay, format, kDraws, packet); });
  }

  std::vector<const void*> PlacePackets(const std::vector<Bytes>& packets, Edge edge) {
    std::vector<const void*> placed;
    for (size_t rank = 0; rank < packets.size(); ++rank) {
      placed.push_back(packets_in_[rank]->Place(packets[rank], edge));
    }
    return placed;
  }

  Outcome Reduce(const Kernels& kernels, SparseReduceInput in, SparseFormat format,
                 const std::vector<Bytes>& packets, const Arrays& arrays, bool is_in_place,
                 Edge edge) {
    const auto placed = PlacePackets(packets, edge);
    in.packets = placed.data();
    in.ranks = placed.size();
    PlaceResidual(arrays, is_in_place, edge, &in);
    return TakePacket(format, in.count, in.residual_out,
                      arrays.residual ? arrays.residual->size() : 0, edge,
                      [&](void* packet) { return kernels.reduce(in, format, kDraws, packet); });
  }

  Outcome Average(const Kernels& kernels, SparseReduceInput in, SparseFormat format,
                  const std::vector<Bytes>& packets, const Arrays& arrays, Edge edge) {
    const auto placed = PlacePackets(packets, edge);
    in.packets = placed.data();
    in.ranks = placed.size();
    in.mask = arrays.mask ? mask_.Place(*arrays.mask, edge) : nullptr;
    const size_t bytes = in.count * BytesOf(in.output_type);
    uint8_t* output = input_.Place(Bytes(bytes, 0xEE), edge);
    const SparseResult result = kernels.average(in, format, kDraws, output);
    Outcome outcome = {.nonfinite_blocks = result.nonfinite_blocks,
                       .is_finite = result.is_finite,
                       .packet = {},
                       .residual = {},
                       .output = Bytes(output, output + bytes)};
    MakeNansEqual(in.output_type, &outcome.output);
    return outcome;
  }

  // One worker's packet, and what three of them make as a sum.
  void ExpectSame(SparseFormat format, size_t count, DataType type,
                  std::optional<DataType> residual_type, bool is_masked, Numbers numbers,
                  bool has_nan = false) {
    SCOPED_TRACE(testing::Message()
                 << "k " << format.codec.k << " block " << format.block << " count " << count
                 << (format.codec.is_random ? " random" : " top")
                 << (format.codec.values == SparseValues::kF32 ? " fp32" : " two magnitudes")
                 << " type " << static_cast<int>(type) << " residual "
                 << (residual_type ? static_cast<int>(*residual_type) : -1)
                 << (is_masked ? " masked" : "") << " numbers " << static_cast<int>(numbers));
    const Edge edge = count % 2 == 0 ? Edge::kLow : Edge::kHigh;
    const bool is_in_place = count % 3 == 0;
    Arrays arrays;
    if (is_masked) arrays.mask = RandomBits(count, random_);
    std::vector<Bytes> packets;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      Bytes input = RandomElements(type, numbers, count, random_);
      if (has_nan && rank == 1 && count != 0) {
        memset(input.data() + count / 2 * BytesOf(type), 0xFF, BytesOf(type));
      }
      CompressInput in = {.input_type = type, .count = count, .scale_type = type};
      if (residual_type) {
        in.residual_type = *residual_type;
        arrays.residual = RandomElements(*residual_type, numbers, count, random_);
      }
      const Outcome expected = Compress(kReference, in, 0.75f, format, input, arrays, false, edge);
      const Outcome actual = Compress(kCpu, in, 0.75f, format, input, arrays, is_in_place, edge);
      EXPECT_TRUE(actual == expected) << "compress: " << Text(actual, expected);
      packets.push_back(expected.packet);
    }
    SparseReduceInput in = {.count = count, .output_type = type, .is_sum = count % 5 == 0};
    if (residual_type) in.residual_type = *residual_type;
    const Outcome expected = Reduce(kReference, in, format, packets, arrays, false, edge);
    const Outcome actual = Reduce(kCpu, in, format, packets, arrays, is_in_place, edge);
    EXPECT_TRUE(actual == expected) << "reduce: " << Text(actual, expected);
    const Outcome expected_average = Average(kReference, in, format, packets, arrays, edge);
    const Outcome average = Average(kCpu, in, format, packets, arrays, edge);
    EXPECT_TRUE(average == expected_average) << "average: " << Text(average, expected_average);
    nonfinite_blocks_ += expected.nonfinite_blocks;
  }

  template <class Check>
  static void ForAllCodecs(const Check& check) {
    for (const SparseValues values : {SparseValues::kF32, SparseValues::kTwoMagnitudes}) {
      for (const bool is_random : {false, true}) {
        check(SparseCodec{
            .k = 0, .values = values, .is_random = is_random, .is_unbiased = is_random});
      }
    }
  }

  static constexpr size_t kCapacity = 1 << 17;
  GuardedMemory input_{kCapacity}, mask_{kCapacity}, residual_in_{kCapacity},
      residual_out_{kCapacity}, packet_out_{kCapacity};
  std::vector<std::unique_ptr<GuardedMemory>> packets_in_;
  Random random_{17};
  size_t nonfinite_blocks_ = 0;
};

TEST_P(SparseTest, EqualsReferenceAtShortCounts) {
  ForAllCodecs([&](SparseCodec codec) {
    for (size_t count = 0; count <= 300; ++count) {
      const size_t block = 1 + count * 7 % 90;
      codec.k = static_cast<uint16_t>(1 + count * 5 % block);
      const auto residual_type = count % 3 == 0   ? std::nullopt
                                 : count % 3 == 1 ? std::optional(DataType::kF32)
                                                  : std::optional(DataType::kBf16);
      ExpectSame({codec, block}, count, kAllTypes[count % 3], residual_type, count % 4 == 1,
                 Numbers::kOrdinary);
    }
  });
}

TEST_P(SparseTest, EqualsReferenceAroundBlocks) {
  ForAllCodecs([&](SparseCodec codec) {
    for (const size_t block : {320, 1024, 4096}) {
      for (const uint16_t k : {1, 7, 26, 64, 85, 160}) {
        codec.k = k;
        for (const size_t count : CountsAround(block)) {
          const bool is_masked = count % 7 == 0;
          ExpectSame({codec, block}, count, DataType::kF32,
                     k % 2 == 0 ? std::optional(DataType::kF32) : std::nullopt, is_masked,
                     Numbers::kOrdinary);
        }
      }
    }
  });
}

TEST_P(SparseTest, EqualsReferenceAtAllMagnitudes) {
  ForAllCodecs([&](SparseCodec codec) {
    for (const Numbers numbers : kAllNumbers) {
      for (const size_t block : {16, 320, 4096}) {
        for (const size_t count : {1, 63, 200, 4200}) {
          codec.k = static_cast<uint16_t>(1 + block / 16);
          const bool is_masked = count == 63 || count == 4200;
          ExpectSame({codec, block}, count, DataType::kF32, DataType::kF32, is_masked, numbers);
          ExpectSame({codec, block}, count, DataType::kBf16, DataType::kBf16, !is_masked, numbers);
          ExpectSame({codec, block}, count, DataType::kF32, std::nullopt, false, numbers);
        }
      }
    }
  });
  EXPECT_GT(nonfinite_blocks_, 0u);
}

TEST_P(SparseTest, EqualsReferenceWithNan) {
  ForAllCodecs([&](SparseCodec codec) {
    for (const size_t block : {16, 4096}) {
      for (const size_t count : {1, 16, 200, 4097, 9000}) {
        for (const bool is_masked : {false, true}) {
          codec.k = static_cast<uint16_t>(block / 8);
          ExpectSame({codec, block}, count, DataType::kF32, std::nullopt, is_masked,
                     Numbers::kOrdinary, true);
        }
      }
    }
  });
  EXPECT_GT(nonfinite_blocks_, 0u);
}

// A few distinct magnitudes make nearly every selection end in a tie.
TEST_P(SparseTest, EqualsReferenceAtTies) {
  for (const size_t distinct : {1, 2, 3, 17}) {
    for (const uint16_t k : {1, 63, 341, 2048}) {
      for (const size_t count : {100, 4096, 5000}) {
        Bytes input(count * sizeof(float));
        for (size_t i = 0; i < count; ++i) {
          const float magnitude = 1 + static_cast<float>(random_() % distinct);
          const float value = random_() % 2 == 0 ? magnitude : -magnitude;
          memcpy(input.data() + i * sizeof(float), &value, sizeof(value));
        }
        const SparseFormat format = {{.k = k, .values = SparseValues::kF32}, 4096};
        const CompressInput in = {.count = count};
        const Outcome expected = Compress(kReference, in, 1, format, input, {}, false, Edge::kHigh);
        const Outcome actual = Compress(kCpu, in, 1, format, input, {}, false, Edge::kHigh);
        EXPECT_TRUE(actual == expected)
            << distinct << " magnitudes, k " << k << ", count " << count;
      }
    }
  }
}

// Magnitudes that round to one bf16 number, also to 2^127, which no element may have.
TEST_P(SparseTest, EqualsReferenceAtNearMagnitudes) {
  for (const float largest : {1.0078f, 0x1.fffffep126f, 0x1.8p-133f}) {
    for (const float spread : {0x1p-23f, 0x1p-10f, 0x1p-8f}) {
      for (const uint16_t k : {1, 5, 160}) {
        for (const bool has_residual : {false, true}) {
          constexpr size_t kCount = 500;
          Bytes input(kCount * sizeof(float));
          for (size_t i = 0; i < kCount; ++i) {
            const float part = std::abs(RandomF32(Numbers::kOrdinary, random_)) * spread;
            const float value = (largest - largest * part) * (random_() % 2 == 0 ? 1.0f : -1.0f);
            memcpy(input.data() + i * sizeof(float), &value, sizeof(value));
          }
          Arrays arrays;
          if (has_residual) arrays.residual = Bytes(input.size());
          const SparseFormat format = {{.k = k}, 320};
          const CompressInput in = {.count = kCount};
          const Outcome expected =
              Compress(kReference, in, 1, format, input, arrays, false, Edge::kHigh);
          const Outcome actual = Compress(kCpu, in, 1, format, input, arrays, false, Edge::kHigh);
          EXPECT_TRUE(expected.is_finite);
          EXPECT_TRUE(actual == expected)
              << largest << " spread " << spread << " k " << k << ": " << Text(actual, expected);
        }
      }
    }
  }
}

TEST_P(SparseTest, EqualsReferenceInStreamedMemory) {
  // Long enough for stores that bypass the caches.
  const size_t count = (size_t{5} << 20) / sizeof(float) + 100;
  const SparseFormat format = {{.k = 64}, 4096};
  const auto run = [&](const Kernels& kernels) {
    Random random(5);
    const Bytes input = RandomElements(DataType::kF32, Numbers::kOrdinary, count, random);
    const Bytes residual_in = RandomElements(DataType::kF32, Numbers::kOrdinary, count, random);
    struct alignas(64) Line {
      uint8_t byte[64];
    };
    std::vector<Line> residual(count * sizeof(float) / 64 + 1), output(residual.size());
    Bytes packet(format.Bytes(count));
    const CompressInput in = {.input = input.data(),
                              .residual_in = residual_in.data(),
                              .residual_out = residual.data(),
                              .count = count};
    kernels.compress(in, 1, format, {}, packet.data());
    const void* const packets[] = {packet.data(), packet.data()};
    kernels.average({.packets = packets, .ranks = 2, .count = count}, format, {}, output.data());
    Bytes all = packet;
    for (const auto& lines : {residual, output}) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(lines.data());
      all.insert(all.end(), bytes, bytes + count * sizeof(float));
    }
    return all;
  };
  EXPECT_TRUE(run(kCpu) == run(kReference));
}

ONEBIT_TEST_EACH_TARGET(SparseTest);

}  // namespace
}  // namespace onebit::kernels
