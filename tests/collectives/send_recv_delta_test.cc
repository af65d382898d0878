// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends and receives with error feedback: what both ranks hold is that of the scalar kernels, stays
// equal whatever a call meets, is compared, and can be saved.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/reference/elements.h"
#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/exported_state.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kCount = 1003;
constexpr size_t kBlock = 64;

struct Kind {
  onebitCodec_t codec = onebitCodecSign;
  DataType type = DataType::kF32;
  int32_t block = kBlock;
  int32_t is_transactional = 1;
  bool has_mask = false;
};

std::vector<uint8_t> MaskOf(const Kind& kind, size_t count) {
  return kind.has_mask ? std::vector<uint8_t>(kernels::BitBytes(count), 0xb7)
                       : std::vector<uint8_t>();
}

UniqueCompressor Make(onebitComm_t comm, const Kind& kind, size_t count = kCount, int64_t id = 3) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveSendRecv;
  config.codec = kind.codec;
  config.block = kind.block;
  config.transactional = kind.is_transactional;
  config.tensorId = id;
  const std::vector<uint8_t> mask = MaskOf(kind, count);
  if (kind.has_mask) config.mask = mask.data();
  return NewCompressor(comm, count, ApiType(kind.type), config);
}

// Models what a sender and its receiver hold, by the scalar kernels.
class PairModel {
 public:
  explicit PairModel(const Kind& kind, size_t count = kCount)
      : kind_(kind), count_(count), mask_(MaskOf(kind, count)), held_(count) {}

  // Simulates a call with finite values; writes the receiver's output.
  void Run(const void* input, void* output) {
    namespace reference = kernels::reference;
    const uint8_t* const mask = kind_.has_mask ? mask_.data() : nullptr;
    const kernels::CompressInput in = {.input = input,
                                       .input_type = kind_.type,
                                       .residual_in = held_.data(),
                                       .mask = mask,
                                       .count = count_};
    if (kind_.codec == onebitCodecSign) {
      std::vector<float> scales(kernels::BlockCount(count_, kBlock));
      std::vector<uint8_t> bits(kernels::BitBytes(count_));
      reference::CompressBlocks(in, kBlock, scales.data(), bits.data());
      EXPECT_TRUE(reference::AddDelta({.bits = bits.data(),
                                       .scales = scales.data(),
                                       .held_in = held_.data(),
                                       .held_out = held_.data(),
                                       .mask = mask,
                                       .count = count_,
                                       .output_type = kind_.type},
                                      kBlock, output));
      return;
    }
    const kernels::LowBitFormat format = {KernelCodec(kind_.codec), kBlock};
    std::vector<uint16_t> scales(kernels::BlockCount(count_, kBlock));
    std::vector<uint16_t> minimums(scales.size());
    std::vector<uint8_t> codes(kernels::CodeBytes(format.codec, count_));
    reference::LowBitCompress(in, format, {}, {scales.data(), minimums.data(), codes.data()});
    EXPECT_TRUE(reference::LowBitAddDelta({.packet = {scales.data(), minimums.data(), codes.data()},
                                           .held_in = held_.data(),
                                           .held_out = held_.data(),
                                           .mask = mask,
                                           .count = count_,
                                           .output_type = kind_.type},
                                          format, output)
                    .is_finite);
  }
  void Reset() { held_.assign(count_, 0); }

 private:
  const Kind kind_;
  const size_t count_;
  const std::vector<uint8_t> mask_;
  std::vector<float> held_;
};

// Numbers that change little from call to call.
Tensor InputOf(const Kind& kind, int call, size_t count = kCount) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  Tensor input(count, kind.type);
  for (size_t i = 0; i < count; ++i) {
    const float start = normal(random);
    input.Set(i, start + 0.01f * static_cast<float>(call) * normal(random));
  }
  return input;
}

onebitResult_t Call(onebitComm_t comm, int rank, onebitCompressor_t compressor, Tensor& values,
                    size_t count, DataType type) {
  return rank == 0 ? onebitSend(values.data(), count, ApiType(type), 1, compressor, comm, nullptr)
                   : onebitRecv(values.data(), count, ApiType(type), 0, compressor, comm, nullptr);
}

void ExpectEqual(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.bytes()), 0) << what;
}

class DeltaTest : public ::testing::TestWithParam<Kind> {};

// 40 calls, of which two compare checksums.
TEST_P(DeltaTest, OutputsAreThoseOfTheScalarKernels) {
  const Kind kind = GetParam();
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kind);
    PairModel model(kind);
    const onebitCommStats_t before = StatsOf(group.comm(rank));
    constexpr int kCalls = 40;
    for (int call = 0; call < kCalls; ++call) {
      Tensor values = InputOf(kind, call);
      Tensor expected(kCount, kind.type);
      model.Run(values.data(), expected.data());
      if (rank == 1) values.Fill(0);
      ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, kCount, kind.type),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (rank == 1) ExpectEqual(values, expected, "call " + std::to_string(call));
    }
    const onebitCommStats_t after = StatsOf(group.comm(rank));
    EXPECT_EQ(after.messages_sent - before.messages_sent, rank == 0 ? kCalls + 2u : 0u);
    EXPECT_EQ(StatsOf(compressor.get()).epoch, static_cast<uint64_t>(kCalls));
  });
}

// The NaN reaches neither rank's estimate: the calls behind it are as if it had not been made.
TEST_P(DeltaTest, ACallWithANanChangesNothing) {
  const Kind kind = GetParam();
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kind);
    PairModel model(kind);
    for (int call = 0; call < 20; ++call) {
      Tensor values = InputOf(kind, call);
      Tensor expected(kCount, kind.type);
      const bool is_bad = call % 3 == 1;
      if (is_bad) {
        if (kind.is_transactional == 0) model.Reset();
        values.Set(500, std::numeric_limits<float>::quiet_NaN());
      } else {
        model.Run(values.data(), expected.data());
      }
      if (rank == 1) values.Fill(0);
      ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, kCount, kind.type),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (rank == 0) continue;
      if (!is_bad) ExpectEqual(values, expected, "call " + std::to_string(call));
      for (size_t i = 0; is_bad && i < kCount; ++i) ASSERT_TRUE(std::isnan(values.Get(i))) << i;
    }
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 7u);
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 13u);
    EXPECT_EQ(StatsOf(compressor.get()).residual_resets, kind.is_transactional == 0 ? 7u : 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeltaTest,
    ::testing::Values(Kind{}, Kind{.type = DataType::kBf16, .has_mask = true},
                      Kind{.codec = onebitCodecFp4},
                      Kind{.codec = onebitCodecInt8, .has_mask = true},
                      Kind{.codec = onebitCodecUint8mm, .type = DataType::kF16},
                      Kind{.codec = onebitCodecInt2}, Kind{.is_transactional = 0},
                      Kind{.codec = onebitCodecInt8, .is_transactional = 0}));

TEST(DeltaPairTest, WhatStaysTheSameArrives) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const Kind kind = {.codec = onebitCodecInt8};
    const UniqueCompressor compressor = Make(group.comm(rank), kind);
    const Tensor exact = InputOf(kind, 0);
    float error = 0;
    for (int call = 0; call < 4; ++call) {
      Tensor values = InputOf(kind, 0);
      ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, kCount, kind.type),
                onebitSuccess);
      error = 0;
      for (size_t i = 0; i < kCount; ++i) {
        error = std::max(error, std::abs(values.Get(i) - exact.Get(i)));
      }
    }
    EXPECT_LT(error, 1e-6f);
  });
}

// The output would overflow fp16, though everything in the message is finite: the sender knows it,
// because it holds the same.
TEST(DeltaPairTest, AnOutputThatOverflowsIsCommittedByNeither) {
  const Kind kind = {.type = DataType::kF16};
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kind, 64);
    for (int call = 0; call < 3; ++call) {
      Tensor values(64, kind.type);
      if (rank == 0) values.Fill(65504);
      if (rank == 0) values.Set(5, 0);
      ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, 64, kind.type),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (rank == 1) {
        EXPECT_EQ(std::isnan(values.Get(0)), call != 0) << call;
      }
    }
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 1u);
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 2u);
    for (int call = 0; call < 20; ++call) {  // both hold what the first call left
      Tensor values(64, kind.type);
      values.Fill(1);
      ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, 64, kind.type),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    }
  });
}

TEST(DeltaPairTest, GroupsOfBothDirectionsKeepTheirOrder) {
  CommGroup group(2);
  const Kind kinds[] = {{}, {.codec = onebitCodecFp4}, {.codec = onebitCodecInt8}};
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    std::vector<UniqueCompressor> compressors;
    std::vector<PairModel> models;
    for (int i = 0; i < 6; ++i) {
      compressors.push_back(Make(comm, kinds[i % 3], kCount, 10 + i));
      models.emplace_back(kinds[i % 3]);
    }
    // The second has calls of its own before, so that checks come in different calls.
    Tensor first = InputOf(kinds[1], 7);
    Tensor ignored(kCount, DataType::kF32);
    models[1].Run(first.data(), ignored.data());
    ASSERT_EQ(Call(comm, rank, compressors[1].get(), first, kCount, DataType::kF32), onebitSuccess);
    for (int call = 0; call < 36; ++call) {
      std::vector<Tensor> values;
      std::vector<Tensor> expected;
      for (int i = 0; i < 6; ++i) {
        values.push_back(InputOf(kinds[i % 3], call + i));
        expected.emplace_back(kCount, DataType::kF32);
        models[static_cast<size_t>(i)].Run(values.back().data(), expected.back().data());
      }
      onebitGroupStart();
      for (size_t i = 0; i < 6; ++i) {
        const bool is_sent = (i < 3) == (rank == 0);
        if (is_sent) {
          onebitSend(values[i].data(), kCount, onebitFloat32, 1 - rank, compressors[i].get(), comm,
                     nullptr);
        } else {
          values[i].Fill(0);
          onebitRecv(values[i].data(), kCount, onebitFloat32, 1 - rank, compressors[i].get(), comm,
                     nullptr);
        }
      }
      ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
      for (size_t i = 0; i < 6; ++i) {
        if ((i < 3) != (rank == 0)) ExpectEqual(values[i], expected[i], std::to_string(i));
      }
    }
  });
}

TEST(DeltaPairTest, AResetOfOneSideIsAMismatch) {
  for (const int side : {0, 1}) {
    CommGroup group(2);
    const auto outcomes = group.Call([&](int rank) {
      const UniqueCompressor compressor = Make(group.comm(rank), {});
      Tensor values(kCount, DataType::kF32);
      values.Fill(1);
      for (int call = 0; call < 3; ++call) {
        if (call == 2 && rank == side) onebitCompressorReset(compressor.get());
        const onebitResult_t result =
            Call(group.comm(rank), rank, compressor.get(), values, kCount, DataType::kF32);
        if (result != onebitSuccess) return result;
      }
      return onebitBarrier(group.comm(rank), nullptr);
    });
    EXPECT_EQ(outcomes[1].result, onebitMismatch);
    EXPECT_THAT(outcomes[1].text, HasSubstr("age of what ranks hold of each other"));
    EXPECT_THAT(outcomes[0].result, AnyOf(onebitMismatch, onebitRemoteError));
  }
}

TEST(DeltaPairTest, AResetOfBothSidesBeginsAnew) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), {});
    for (int round = 0; round < 2; ++round) {
      PairModel model{Kind{}};
      for (int call = 0; call < 3; ++call) {
        Tensor values = InputOf({}, call);
        Tensor expected(kCount, DataType::kF32);
        model.Run(values.data(), expected.data());
        ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, kCount, DataType::kF32),
                  onebitSuccess);
        if (rank == 1) ExpectEqual(values, expected, "round " + std::to_string(round));
      }
      ASSERT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
    }
  });
}

// Two pairs have the same ages; the receiver of one gets what the other has received.
TEST(DeltaPairTest, DifferentEstimatesAreFoundByTheirChecksum) {
  CommGroup group(2);
  const auto outcomes = group.Call([&](int rank) -> onebitResult_t {
    const onebitComm_t comm = group.comm(rank);
    const UniqueCompressor compressors[] = {Make(comm, {}, kCount, 1), Make(comm, {}, kCount, 2)};
    for (int i = 0; i < 2; ++i) {
      Tensor values = InputOf({}, 5 * i);
      const onebitResult_t result =
          Call(comm, rank, compressors[i].get(), values, kCount, DataType::kF32);
      if (result != onebitSuccess) return result;
    }
    if (rank == 1) {
      const std::vector<std::byte> state = StateOf(compressors[1].get());
      onebitCompressorImport(compressors[0].get(), state.data(), state.size());
    }
    for (int call = 1; call < 20; ++call) {
      Tensor values = InputOf({}, call);
      const onebitResult_t result =
          Call(comm, rank, compressors[0].get(), values, kCount, DataType::kF32);
      if (result != onebitSuccess) {
        EXPECT_GE(call, 16);
        return result;
      }
    }
    return onebitBarrier(comm, nullptr);
  });
  EXPECT_EQ(outcomes[1].result, onebitMismatch);
  EXPECT_THAT(outcomes[1].text, HasSubstr("hold different values of what rank 0 sends"));
  EXPECT_THAT(outcomes[0].result, AnyOf(onebitMismatch, onebitRemoteError));
}

TEST(DeltaPairTest, StatesContinue) {
  const Kind kind = {.codec = onebitCodecFp4};
  std::vector<std::byte> states[2];
  PairModel model(kind);
  {
    CommGroup group(2);
    group.Run([&](int rank) {
      const UniqueCompressor compressor = Make(group.comm(rank), kind);
      for (int call = 0; call < 17; ++call) {
        Tensor values = InputOf(kind, call);
        ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, kCount, kind.type),
                  onebitSuccess);
      }
      states[rank] = StateOf(compressor.get());
    });
  }
  Tensor ignored(kCount, kind.type);
  for (int call = 0; call < 17; ++call) model.Run(InputOf(kind, call).data(), ignored.data());
  std::vector<Tensor> expected;
  for (int call = 17; call < 40; ++call) {
    expected.emplace_back(kCount, kind.type);
    model.Run(InputOf(kind, call).data(), expected.back().data());
  }
  CommGroup group(2);
  group.Run([&](int rank) {
    const UniqueCompressor compressor = Make(group.comm(rank), kind);
    ASSERT_EQ(onebitCompressorImport(compressor.get(), states[rank].data(), states[rank].size()),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 17u);
    for (int call = 17; call < 40; ++call) {
      Tensor values = InputOf(kind, call);
      ASSERT_EQ(Call(group.comm(rank), rank, compressor.get(), values, kCount, kind.type),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (rank == 1) ExpectEqual(values, expected[static_cast<size_t>(call - 17)], "after loading");
    }
  });
}

TEST(DeltaPairTest, ACompressorServesOnePeerInOneDirection) {
  CommGroup group(3);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    Tensor values(kCount, DataType::kF32);
    const UniqueCompressor compressor = Make(comm, {});
    if (rank != 2) {
      ASSERT_EQ(Call(comm, rank, compressor.get(), values, kCount, DataType::kF32), onebitSuccess);
    }
    if (rank == 0) {
      EXPECT_EQ(
          onebitSend(values.data(), kCount, onebitFloat32, 2, compressor.get(), comm, nullptr),
          onebitInvalidUsage);
      EXPECT_THAT(onebitGetLastError(nullptr),
                  HasSubstr("call is a send to rank 2, but the compressor of tensor 3 was used to "
                            "send to rank 1:"));
      EXPECT_EQ(
          onebitRecv(values.data(), kCount, onebitFloat32, 1, compressor.get(), comm, nullptr),
          onebitInvalidUsage);
      ASSERT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
      EXPECT_EQ(
          onebitSend(values.data(), kCount, onebitFloat32, 2, compressor.get(), comm, nullptr),
          onebitSuccess);
    } else if (rank == 2) {
      EXPECT_EQ(
          onebitRecv(values.data(), kCount, onebitFloat32, 0, compressor.get(), comm, nullptr),
          onebitSuccess);
    }
  });
}

TEST(DeltaPairTest, ARankCopiesWhatItSendsToItselfAndKeepsNothing) {
  CommGroup group(2);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const UniqueCompressor sender = Make(comm, {}, 100, 1);
    const UniqueCompressor receiver = Make(comm, {}, 100, 2);
    const std::vector<float> from(100, 3.0f);
    std::vector<float> to(100);
    onebitGroupStart();
    onebitSend(from.data(), 100, onebitFloat32, rank, sender.get(), comm, nullptr);
    onebitRecv(to.data(), 100, onebitFloat32, rank, receiver.get(), comm, nullptr);
    ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << onebitGetLastError(nullptr);
    EXPECT_EQ(to, from);
    EXPECT_EQ(StatsOf(sender.get()).epoch, 0u);
    EXPECT_EQ(StatsOf(receiver.get()).epoch, 0u);
  });
}

TEST(DeltaPairTest, WhatAllRanksMustMakeIsRefused) {
  CommGroup group(2);
  const UniqueCompressor compressor = Make(group.comm(0), {});
  std::vector<float> values(kCount);
  EXPECT_EQ(
      onebitCompressorPrime(compressor.get(), values.data(), values.data(), onebitSum, nullptr),
      onebitInvalidUsage);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("call onebitCompressorReset on both"));
  size_t bytes = 0;
  EXPECT_EQ(onebitCompressorExport(compressor.get(), onebitStateGlobal, nullptr, &bytes),
            onebitInvalidUsage);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("export onebitStateRank on both"));
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = onebitCollectiveSendRecv;
  config.residualType = onebitBfloat16;
  onebitCompressor_t created = nullptr;
  EXPECT_EQ(onebitCompressorCreate(&created, group.comm(0), 10, onebitFloat32, &config),
            onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("onebitFloat32 for a receive"));
}

}  // namespace
}  // namespace onebit::testing
