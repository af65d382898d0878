// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Server side: every instruction set against the scalar oracle, byte for byte.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "kernels/kernels.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/packet_case.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

struct ServerState {
  std::optional<DataType> residual_type = DataType::kF32;
  Bytes residual;
  std::optional<Bytes> mask;
  ScaleRule rule = ScaleRule::kL2;
  DataType output_type = DataType::kF32;
  bool is_sum = false;
};

struct ReduceResult {
  bool is_finite = false;
  std::vector<float> scales;
  Bytes bits, residual;
};

struct ReduceKernels {
  decltype(&cpu::ReduceBlocks) blocks;
  decltype(&cpu::ReduceSigns) signs;
  decltype(&cpu::ReduceResidual) residual;
  decltype(&cpu::ScaleOf) scale_of;
  decltype(&cpu::OutputScale) output_scale;
};
constexpr ReduceKernels kCpu = {cpu::ReduceBlocks, cpu::ReduceSigns, cpu::ReduceResidual,
                                cpu::ScaleOf, cpu::OutputScale};
constexpr ReduceKernels kReference = {reference::ReduceBlocks, reference::ReduceSigns,
                                      reference::ReduceResidual, reference::ScaleOf,
                                      reference::OutputScale};
constexpr size_t kMaxRanks = 19;

class ReduceTest : public EachTarget {
 protected:
  ReduceResult Run(const ReduceKernels& kernels, const PacketCase& c, const ServerState& state,
                   Edge edge, bool is_in_place) {
    ReduceInput in = packets_.Place(c, edge);
    in.rule = state.rule;
    in.output_type = state.output_type;
    in.is_sum = state.is_sum;
    if (state.mask) in.mask = mask_.Place(*state.mask, edge);
    if (state.residual_type) {
      in.residual_type = *state.residual_type;
      in.residual_in = residual_in_.Place(state.residual, edge);
      in.residual_out = is_in_place ? const_cast<void*>(in.residual_in)
                                    : residual_out_.Place(Bytes(state.residual.size(), 0xEE), edge);
    }
    ReduceResult result;
    result.scales.assign(c.scales[0].size(), -1);
    float* scales = scales_.Place(result.scales, edge);
    uint8_t* bits = bits_.Place(Bytes(BitBytes(c.count), 0xEE), edge);
    if (c.block != 0) {
      result.is_finite = kernels.blocks(in, c.block, scales, bits);
    } else {
      TensorSum sum;
      kernels.signs(in, bits, &sum);
      scales[0] =
          kernels.output_scale(kernels.scale_of(sum, in.rule), in.ranks, in.is_sum, in.output_type);
      result.is_finite = sum.is_finite && std::isfinite(scales[0]);
      kernels.residual(in, scales[0]);
    }
    result.scales.assign(scales, scales + result.scales.size());
    result.bits.assign(bits, bits + BitBytes(c.count));
    if (state.residual_type) {
      const auto* residual = static_cast<const uint8_t*>(in.residual_out);
      result.residual.assign(residual, residual + state.residual.size());
    }
    return result;
  }

  void ExpectSame(const PacketCase& c, const ServerState& state, Edge edge,
                  bool is_in_place = false) {
    const ReduceResult expected = Run(kReference, c, state, edge, false);
    const ReduceResult actual = Run(kCpu, c, state, edge, is_in_place);
    const bool is_same = expected.is_finite == actual.is_finite &&
                         (!expected.is_finite ||
                          (expected.bits == actual.bits && expected.residual == actual.residual &&
                           SameBytes(expected.scales.data(), actual.scales.data(),
                                     actual.scales.size() * sizeof(float))));
    EXPECT_TRUE(is_same) << "ranks " << c.ranks << " count " << c.count << " block " << c.block
                         << " output type " << static_cast<int>(state.output_type)
                         << (state.mask ? " masked" : "") << (state.is_sum ? " sum" : "");
  }

  // Draws a random server state, so that all combinations occur over many calls.
  ServerState RandomState(size_t count, Numbers numbers) {
    ServerState state;
    switch (random_() % 3) {
      case 0:
        state.residual_type = std::nullopt;
        break;
      case 1:
        state.residual_type = DataType::kBf16;
        break;
      default:
        break;
    }
    if (state.residual_type) {
      state.residual = RandomElements(*state.residual_type, numbers, count, random_);
    }
    if (random_() % 2 == 0) state.mask = RandomBits(count, random_);
    state.rule = random_() % 2 == 0 ? ScaleRule::kL2 : ScaleRule::kL1;
    state.output_type = kAllTypes[random_() % 3];
    state.is_sum = random_() % 2 == 0;
    return state;
  }

  PlacedPackets packets_{kMaxRanks};
  GuardedMemory residual_in_{size_t{1} << 18}, residual_out_{size_t{1} << 18},
      mask_{size_t{1} << 18}, scales_{size_t{1} << 18}, bits_{size_t{1} << 18};
  Random random_{2};
};

TEST_P(ReduceTest, EqualsReferenceAtAllShortCounts) {
  for (size_t ranks = 1; ranks <= 9; ++ranks) {
    for (const size_t count : ShortCounts()) {
      const size_t block = 64 * (count % 4);
      ExpectSame(RandomPackets(ranks, count, block, Numbers::kOrdinary, random_),
                 RandomState(count, Numbers::kOrdinary), count % 2 == 0 ? Edge::kLow : Edge::kHigh);
    }
  }
}

TEST_P(ReduceTest, EqualsReferenceAroundBlocks) {
  for (const size_t ranks : {1, 2, 3, 7, 8, 9, 16, 19}) {
    for (const size_t block : {64, 128, 192, 256, 512, 1024, 2048, 4096, 8192}) {
      for (const size_t count : CountsAround(block)) {
        ExpectSame(RandomPackets(ranks, count, block, Numbers::kOrdinary, random_),
                   RandomState(count, Numbers::kOrdinary), Edge::kHigh);
      }
    }
  }
}

TEST_P(ReduceTest, EqualsReferenceForEveryKindOfServer) {
  for (const DataType output_type : kAllTypes) {
    for (const bool is_sum : {false, true}) {
      for (const bool is_masked : {false, true}) {
        for (const ScaleRule rule : {ScaleRule::kL2, ScaleRule::kL1}) {
          for (const size_t block : {0, 256}) {
            ServerState state = RandomState(777, Numbers::kOrdinary);
            state.output_type = output_type;
            state.is_sum = is_sum;
            state.rule = rule;
            state.mask = std::nullopt;
            if (is_masked) state.mask = RandomBits(777, random_);
            ExpectSame(RandomPackets(3, 777, block, Numbers::kOrdinary, random_), state,
                       Edge::kHigh);
          }
        }
      }
    }
  }
}

TEST_P(ReduceTest, EqualsReferenceAtAllMagnitudes) {
  for (const Numbers numbers : kAllNumbers) {
    for (int repetition = 0; repetition < 40; ++repetition) {
      const size_t count = 1 + random_() % 9000;
      const size_t block = repetition % 4 == 0 ? 0 : 4096;
      ExpectSame(RandomPackets(1 + random_() % 9, count, block, numbers, random_),
                 RandomState(count, numbers), Edge::kHigh);
    }
  }
}

TEST_P(ReduceTest, UpdatesResidualInPlace) {
  for (const size_t block : {0, 64, 256, 1024, 4096, 8192}) {
    for (const size_t count : {7, 255, 4097, 16390}) {
      ServerState state = RandomState(count, Numbers::kOrdinary);
      state.residual_type = count % 2 == 0 ? DataType::kF32 : DataType::kBf16;
      state.residual = RandomElements(*state.residual_type, Numbers::kOrdinary, count, random_);
      ExpectSame(RandomPackets(5, count, block, Numbers::kOrdinary, random_), state, Edge::kHigh,
                 /*is_in_place=*/true);
    }
  }
}

TEST_P(ReduceTest, OutputScaleRoundsOnceToTheOutputType) {
  EXPECT_EQ(cpu::OutputScale(0.1f, 3, false, DataType::kF32), 0.1f);
  EXPECT_EQ(cpu::OutputScale(0.1f, 3, true, DataType::kF32), 0.1f * 3.0f);
  EXPECT_EQ(cpu::OutputScale(1 + 0x1p-11f, 1, false, DataType::kF16), 1.0f);  // tie to even
  EXPECT_EQ(cpu::OutputScale(1 + 3 * 0x1p-11f, 1, false, DataType::kF16), 1 + 0x1p-9f);
  EXPECT_EQ(cpu::OutputScale(1 + 0x1p-8f, 1, false, DataType::kBf16), 1.0f);
  EXPECT_EQ(cpu::OutputScale(65519, 1, false, DataType::kF16), 65504.0f);
  EXPECT_TRUE(std::isinf(cpu::OutputScale(65520, 1, false, DataType::kF16)));
  EXPECT_TRUE(std::isinf(cpu::OutputScale(32760, 2, true, DataType::kF16)));
}

TEST_P(ReduceTest, RefusesScaleThatOverflowsTheOutputType) {
  const uint8_t bits = 0;
  const uint8_t* const packets[] = {&bits};
  const float scale = 70000;
  const float* const scales[] = {&scale};
  ReduceInput in = {.bits = packets, .scales = scales, .ranks = 1, .count = 8};
  float sent;
  uint8_t sent_bits;
  EXPECT_TRUE(cpu::ReduceBlocks(in, 64, &sent, &sent_bits));
  in.output_type = DataType::kF16;
  EXPECT_FALSE(cpu::ReduceBlocks(in, 64, &sent, &sent_bits));
}

ONEBIT_TEST_EACH_TARGET(ReduceTest);

}  // namespace
}  // namespace onebit::kernels
