// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Error feedback of parts loses nothing. Over any number of calls, up to rounding,
//   reduce-scatter   sum of outputs + mean of the residuals = sum of mean inputs
//   all-to-all       sum of outputs + residual = sum of inputs, for every pair
//   all-gather       output + (input - estimate) = input, with equal estimates on all ranks
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/chunk_model.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr uint32_t kSeed = 7251;

// One tensor over many calls on all ranks of a group.
class ChunkRun {
 public:
  ChunkRun(CommGroup& group, const ChunkCase& c)
      : group_(group),
        case_(c),
        inputs_(c.ranks, std::vector<double>(c.send_count())),
        outputs_(c.ranks, std::vector<double>(c.receive_count())) {
    for (int rank = 0; rank < group.ranks(); ++rank) {
      compressors_.push_back(NewCompressor(group.comm(rank), c.count, ApiType(c.type), c.config()));
    }
  }

  onebitCompressor_t compressor(size_t rank) const { return compressors_[rank].get(); }
  double sent(size_t rank, size_t i) const { return inputs_[rank][i]; }
  double received(size_t rank, size_t i) const { return outputs_[rank][i]; }

  // Adds up inputs and outputs of `calls` calls.
  void Call(int calls) {
    group_.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      std::mt19937 random(kSeed + 1000 * seed_ + static_cast<uint32_t>(rank));
      std::vector<Tensor> buffers;
      buffers.emplace_back(case_.send_count(), case_.type);
      buffers.emplace_back(case_.receive_count(), case_.type);
      Tensor& input = buffers[0];
      Tensor& output = buffers[1];
      for (int call = 0; call < calls; ++call) {
        input.FillNormal(random);
        ASSERT_EQ(MakeCall(case_.collective,
                           {.send = input.data(),
                            .receive = output.data(),
                            .count = case_.count,
                            .type = ApiType(case_.type),
                            .op = case_.is_sum ? onebitSum : onebitAvg,
                            .compressor = compressor(r)},
                           group_.comm(rank)),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        const double unit = case_.is_sum ? static_cast<double>(case_.ranks) : 1;
        for (size_t i = 0; i < input.count(); ++i) inputs_[r][i] += input.Get(i);
        for (size_t i = 0; i < output.count(); ++i) outputs_[r][i] += output.Get(i) / unit;
      }
    });
    ++seed_;
  }

 private:
  CommGroup& group_;
  const ChunkCase& case_;
  std::vector<UniqueCompressor> compressors_;
  std::vector<std::vector<double>> inputs_, outputs_;  // sums, by rank
  uint32_t seed_ = 0;
};

// The largest missing value, relative to the largest value.
class Missing {
 public:
  void Add(double have, double want, double residual) {
    error_ = std::max(error_, std::abs(have - want));
    magnitude_ = std::max({magnitude_, std::abs(want), std::abs(residual)});
  }
  double relative() const { return error_ == 0 ? 0 : error_ / magnitude_; }

 private:
  double error_ = 0;
  double magnitude_ = 0;
};

double MissingOfReduceScatter(const ChunkRun& run, const ChunkCase& c) {
  std::vector<std::vector<float>> residuals;
  for (size_t rank = 0; rank < c.ranks; ++rank) {
    residuals.push_back(WorkerResidualOf(run.compressor(rank)));
  }
  Missing missing;
  for (size_t i = 0; i < c.elements(); ++i) {
    double residual = 0, input = 0;
    for (size_t rank = 0; rank < c.ranks; ++rank) {
      residual += residuals[rank][i] / static_cast<double>(c.ranks);
      input += run.sent(rank, i) / static_cast<double>(c.ranks);
    }
    missing.Add(run.received(i / c.count, i % c.count) + residual, input, residual);
  }
  return missing.relative();
}

double MissingOfAllToAll(const ChunkRun& run, const ChunkCase& c) {
  Missing missing;
  for (size_t from = 0; from < c.ranks; ++from) {
    const std::vector<float> residual = WorkerResidualOf(run.compressor(from));
    for (size_t i = 0; i < c.elements(); ++i) {
      const double output = run.received(i / c.count, from * c.count + i % c.count);
      missing.Add(output + residual[i], run.sent(from, i), residual[i]);
    }
  }
  return missing.relative();
}

ChunkCase FeedbackCase(onebitCollective_t collective, size_t ranks, size_t count,
                       std::mt19937& random) {
  ChunkCase c = RandomChunkCase(collective, ranks, count, random);
  c.has_feedback = true;
  c.mask.clear();
  c.residual_type = DataType::kF32;
  c.is_in_place = false;
  return c;
}

class ChunkTelescopingTest : public ::testing::TestWithParam<int> {
 protected:
  size_t ranks() const { return static_cast<size_t>(GetParam()); }
  // 14 tensors of 8 calls on each of 9 numbers of ranks: over a thousand calls.
  void ForEachTensor(onebitCollective_t collective,
                     const std::function<void(const ChunkCase&, ChunkRun&)>& check) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed + ranks());
    CommGroup whole(GetParam());
    CommGroup segments(GetParam(), {.timeout_ms = 20'000, .segment_elements = 100});
    for (int i = 0; i < 14; ++i) {
      ChunkCase c = FeedbackCase(collective, ranks(), random_() % 300 * 2 + 1, random_);
      // The last rounding of a mean to 16 bits is in no residual.
      if (collective == onebitCollectiveReduceScatter) c.type = DataType::kF32;
      SCOPED_TRACE(::testing::Message() << c);
      ChunkRun run(i % 2 == 0 ? whole : segments, c);
      ASSERT_NO_FATAL_FAILURE(run.Call(8));
      check(c, run);
    }
  }
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

TEST_P(ChunkTelescopingTest, ReduceScatterLosesNothing) {
  ForEachTensor(onebitCollectiveReduceScatter, [](const ChunkCase& c, ChunkRun& run) {
    EXPECT_LE(MissingOfReduceScatter(run, c), 1e-5);
  });
}

// Scales are rounded to the output's type before residuals are formed, so this holds for all types.
TEST_P(ChunkTelescopingTest, AllToAllLosesNothingForAnyPair) {
  ForEachTensor(onebitCollectiveAllToAll, [](const ChunkCase& c, ChunkRun& run) {
    EXPECT_LE(MissingOfAllToAll(run, c), 1e-5);
  });
}

// The estimate is the last output in fp32, the same on all ranks.
TEST_P(ChunkTelescopingTest, AllGatherHoldsItsOutputOnEveryRank) {
  ForEachTensor(onebitCollectiveAllGather, [](const ChunkCase& c, ChunkRun& run) {
    if (c.ranks == 1) return;  // copies only
    const std::vector<float> held = WorkerResidualOf(run.compressor(0));
    std::vector<double> before;
    for (size_t i = 0; i < c.elements(); ++i) before.push_back(run.received(0, i));
    ASSERT_NO_FATAL_FAILURE(run.Call(1));
    const std::vector<float> after = WorkerResidualOf(run.compressor(0));
    EXPECT_NE(after, held);
    for (size_t rank = 0; rank < c.ranks; ++rank) {
      EXPECT_EQ(WorkerResidualOf(run.compressor(rank)), after) << "rank " << rank;
    }
    for (size_t i = 0; i < c.elements(); ++i) {
      const float rounded = kernels::reference::RoundTo(c.type, -after[i]);
      ASSERT_NEAR(run.received(0, i) - before[i], rounded, 1e-5 * (1 + std::abs(before[i])));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ChunkTelescopingTest, ::testing::Range(1, 10));

TEST(ChunkTelescopingLongTest, NothingIsLostOverAThousandCalls) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (const onebitCollective_t collective :
       {onebitCollectiveReduceScatter, onebitCollectiveAllToAll}) {
    ChunkCase c = FeedbackCase(collective, 3, 33, random);
    c.type = DataType::kF32;
    SCOPED_TRACE(::testing::Message() << c);
    CommGroup group(3);
    ChunkRun run(group, c);
    ASSERT_NO_FATAL_FAILURE(run.Call(1000));
    EXPECT_LE(collective == onebitCollectiveAllToAll ? MissingOfAllToAll(run, c)
                                                     : MissingOfReduceScatter(run, c),
              1e-5);
  }
}

// A constant input is reached, because every call sends the rest. 300 calls also include many
// comparisons of estimates.
TEST(ChunkTelescopingLongTest, AllGatherComesToWhatStays) {
  constexpr size_t kRanks = 3;
  constexpr size_t kCount = 77;
  CommGroup group(kRanks);
  std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(kCount));
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (auto& input : inputs) {
    for (float& value : input) value = normal(random);
  }
  group.Run([&](int rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.collective = onebitCollectiveAllGather;
    config.scaleRule = onebitScaleL1;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    std::vector<float> output(kRanks * kCount);
    for (int call = 0; call < 300; ++call) {
      ASSERT_EQ(onebitAllGather(inputs[static_cast<size_t>(rank)].data(), output.data(), kCount,
                                onebitFloat32, compressor.get(), group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    }
    for (size_t i = 0; i < output.size(); ++i) {
      ASSERT_NEAR(output[i], inputs[i / kCount][i % kCount], 1e-3) << "element " << i;
    }
  });
}

}  // namespace
}  // namespace onebit::testing
