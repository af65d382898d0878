// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A value that is not finite, in any part on any rank, makes the whole output NaN on every rank,
// including ranks that receive no packet of that part, and is forgotten afterwards.
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/chunk_model.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr uint32_t kSeed = 7351;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool IsAllNan(const Tensor& output) {
  for (size_t i = 0; i < output.count(); ++i) {
    if (!std::isnan(output.Get(i))) return false;
  }
  return true;
}

// A tensor on all ranks of a group.
class Tensors {
 public:
  Tensors(CommGroup& group, const ChunkCase& c) : group_(group), case_(c) {
    for (int rank = 0; rank < group.ranks(); ++rank) {
      compressors_.push_back(NewCompressor(group.comm(rank), c.count, ApiType(c.type), c.config()));
    }
  }

  std::vector<Tensor> Call(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> outputs;
    for (size_t rank = 0; rank < case_.ranks; ++rank) {
      outputs.emplace_back(case_.receive_count(), case_.type);
    }
    group_.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      ASSERT_EQ(MakeCall(case_.collective,
                         {.send = inputs[r].data(),
                          .receive = outputs[r].data(),
                          .count = case_.count,
                          .type = ApiType(case_.type),
                          .op = onebitSum,
                          .compressor = compressors_[r].get()},
                         group_.comm(rank)),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_TRUE(outputs[r].HasIntactGuards());
    });
    return outputs;
  }

  void ExpectNonfinite(const std::vector<Tensor>& inputs) {
    std::vector<Residuals> before;
    std::vector<onebitCompressorStats_t> stats;
    for (const auto& compressor : compressors_) {
      before.push_back(ResidualsOf(compressor.get()));
      stats.push_back(StatsOf(compressor.get()));
    }
    const std::vector<Tensor> outputs = Call(inputs);
    for (size_t rank = 0; rank < case_.ranks; ++rank) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank);
      EXPECT_TRUE(IsAllNan(outputs[rank]));
      const onebitCompressorStats_t now = StatsOf(compressors_[rank].get());
      EXPECT_EQ(now.nonfinite_calls, stats[rank].nonfinite_calls + 1);
      EXPECT_EQ(now.epoch, stats[rank].epoch);
      const Residuals after = ResidualsOf(compressors_[rank].get());
      const Residuals zero{std::vector<std::byte>(after.worker.size()), {}};
      EXPECT_TRUE(after == (case_.is_transactional ? before[rank] : zero));
      EXPECT_EQ(now.residual_resets - stats[rank].residual_resets,
                !case_.is_transactional && case_.has_feedback ? 1u : 0u);
    }
  }

 private:
  CommGroup& group_;
  const ChunkCase& case_;
  std::vector<UniqueCompressor> compressors_;
};

class ChunkNonfiniteTest : public ::testing::TestWithParam<onebitCollective_t> {
 protected:
  // Puts a bad value into each part of each rank's input in turn, between good calls, whose outputs
  // must equal those of a group that never saw it.
  void ExpectForgotten(const ChunkCase& c, float bad) {
    SCOPED_TRACE(::testing::Message() << c << ", " << bad);
    const int ranks = static_cast<int>(c.ranks);
    CommGroup group(ranks, {.timeout_ms = 20'000, .segment_elements = 64}), pure_group(ranks);
    Tensors tensors(group, c), pure(pure_group, c);
    const size_t parts = SendParts(c.collective, c.ranks);
    for (size_t rank = 0; rank < c.ranks; ++rank) {
      for (size_t part = 0; part < parts; ++part) {
        SCOPED_TRACE(::testing::Message() << "part " << part << " of rank " << rank);
        const std::vector<Tensor> good = RandomInputs(c, random_);
        const std::vector<Tensor> outputs = tensors.Call(good);
        const std::vector<Tensor> expected = pure.Call(good);
        for (size_t r = 0; r < c.ranks; ++r) EXPECT_TRUE(outputs[r].HasBytesOf(expected[r]));
        std::vector<Tensor> inputs = RandomInputs(c, random_);
        inputs[rank].Set(part * c.count + random_() % c.count, bad);
        tensors.ExpectNonfinite(inputs);
        if (HasFailure()) return;
        if (!c.is_transactional) return;  // without transactions its residuals now differ
      }
    }
  }
  std::mt19937 random_{kSeed};
};

TEST_P(ChunkNonfiniteTest, OnAnyRankInAnyPartIsForgotten) {
  for (size_t ranks = 1; ranks <= 5; ++ranks) {
    for (const bool has_feedback : {false, true}) {
      for (const uint32_t block : {0u, 64u}) {
        ChunkCase c{.collective = GetParam(), .ranks = ranks, .count = 151};
        c.has_feedback = has_feedback;
        c.block = block;
        c.is_sum = true;
        c.type = has_feedback ? DataType::kF32 : DataType::kBf16;
        ExpectForgotten(c, ranks % 2 == 0 ? -kInfinity : std::nanf(""));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ChunkNonfiniteTest, WithoutASecondGenerationAllRanksResetAlike) {
  ChunkCase c{.collective = GetParam(), .ranks = 3, .count = 100};
  c.is_transactional = false;
  c.is_sum = true;
  ExpectForgotten(c, kInfinity);
}

// Elements outside of the mask are not inspected.
TEST_P(ChunkNonfiniteTest, OutsideTheMaskIsNotMet) {
  ChunkCase c{.collective = GetParam(), .ranks = 3, .count = 13};
  c.mask.assign(kernels::BitBytes(c.elements()), 0xff);
  // Element 5 of every part.
  for (size_t part = 0; part < c.ranks; ++part) {
    const size_t i = part * c.count + 5;
    c.mask[i / 8] &= static_cast<uint8_t>(~(1u << (i % 8)));
  }
  CommGroup group(3);
  Tensors tensors(group, c);
  for (int call = 0; call < 3; ++call) {
    std::vector<Tensor> inputs = RandomInputs(c, random_);
    for (Tensor& input : inputs) {
      for (size_t i = 5; i < input.count(); i += c.count) input.Set(i, std::nanf(""));
    }
    for (const Tensor& output : tensors.Call(inputs)) {
      for (size_t i = 0; i < output.count(); ++i) {
        if (i % c.count == 5) {
          EXPECT_EQ(output.Get(i), 0.0f);
        } else {
          EXPECT_TRUE(std::isfinite(output.Get(i)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, ChunkNonfiniteTest, ::testing::ValuesIn(kChunkCollectives),
                         [](const auto& info) { return TextOf(info.param); });

// Only the rank that sums this part can notice; its verdict tells the others.
TEST(ChunkOverflowTest, OfOneRanksOutputIsEverybodys) {
  ChunkCase c{.collective = onebitCollectiveReduceScatter, .ranks = 3, .count = 70};
  c.type = DataType::kF16;
  c.is_sum = true;
  CommGroup group(3);
  Tensors tensors(group, c);
  std::mt19937 random(kSeed);
  std::vector<Tensor> inputs = RandomInputs(c, random);
  static_cast<void>(tensors.Call(inputs));
  for (Tensor& input : inputs) {
    for (size_t i = 0; i < c.count; ++i) input.Set(2 * c.count + i, 30'000);
  }
  tensors.ExpectNonfinite(inputs);
}

// The scale overflows the output's type because of error feedback.
TEST(ChunkOverflowTest, OfAScaleIsSeenBeforeItIsSent) {
  ChunkCase c{.collective = onebitCollectiveAllToAll, .ranks = 2, .count = 64};
  c.type = DataType::kF16;
  CommGroup group(2);
  Tensors tensors(group, c);
  std::vector<Tensor> inputs;
  for (int rank = 0; rank < 2; ++rank) inputs.emplace_back(c.send_count(), c.type);
  // Half of the elements owe as much as the others have received too much.
  for (size_t i = 0; i < c.send_count(); ++i) inputs[0].Set(i, i % 2 == 0 ? 65'504 : 0);
  static_cast<void>(tensors.Call(inputs));
  for (size_t i = 0; i < c.send_count(); ++i) inputs[0].Set(i, i % 2 == 0 ? 65'504 : -65'504);
  tensors.ExpectNonfinite(inputs);
}

TEST(PairsNonfiniteTest, InOnePairIsEverybodysNan) {
  constexpr size_t kCount = 50;
  CommGroup group(3);
  for (int bad_rank = 0; bad_rank < 3; ++bad_rank) {
    for (size_t bad_part = 0; bad_part < 3; ++bad_part) {
      group.Run([&](int rank) {
        onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
        config.collective = onebitCollectiveAllToAllv;
        config.mode = onebitModePlain;
        const UniqueCompressor compressor =
            NewCompressor(group.comm(rank), 0, onebitFloat32, config);
        std::vector<float> sent(3 * kCount, 1), received(3 * kCount);
        if (rank == bad_rank) sent[bad_part * kCount + 7] = std::nanf("");
        ASSERT_EQ(MakeEqualPairs({.send = sent.data(),
                                  .receive = received.data(),
                                  .count = kCount,
                                  .compressor = compressor.get()},
                                 group.comm(rank)),
                  onebitSuccess);
        for (const float value : received) EXPECT_TRUE(std::isnan(value));
        EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 1u);
      });
    }
  }
}

}  // namespace
}  // namespace onebit::testing
