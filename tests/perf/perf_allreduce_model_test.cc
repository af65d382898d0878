// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Properties of the model of allreduce that hold for any numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference/elements.h"
#include "perf/common/allreduce_model.h"

namespace onebit::model {
namespace {

using namespace kernels;
using namespace kernels::reference;

constexpr uint32_t kSeed = 20240607;

// Inputs of all ranks as bytes of one type.
class Inputs {
 public:
  Inputs(size_t ranks, size_t count, DataType type, std::mt19937& random)
      : count_(count), type_(type), ranks_(ranks, std::vector<std::byte>(count * BytesOf(type))) {
    std::normal_distribution<float> normal;
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < count; ++i) Set(rank, i, normal(random));
    }
  }

  void Set(size_t rank, size_t i, float value) {
    StoreElement(value, type_, i, ranks_[rank].data());
  }
  float Get(size_t rank, size_t i) const { return LoadElement(ranks_[rank].data(), type_, i); }
  double Mean(size_t i) const {
    double sum = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) sum += Get(rank, i);
    return sum / static_cast<double>(ranks_.size());
  }
  std::vector<const void*> pointers() const {
    std::vector<const void*> pointers;
    for (const auto& input : ranks_) pointers.push_back(input.data());
    return pointers;
  }
  size_t count() const { return count_; }

 private:
  size_t count_;
  DataType type_;
  std::vector<std::vector<std::byte>> ranks_;
};

struct RunResult {
  bool is_finite;
  std::vector<float> values;
};

RunResult Simulate(AllReduceModel& model, const Inputs& inputs, DataType type) {
  std::vector<std::byte> output(inputs.count() * BytesOf(type));
  RunResult result;
  result.is_finite = model.Run(inputs.pointers(), output.data());
  for (size_t i = 0; i < inputs.count(); ++i) {
    result.values.push_back(LoadElement(output.data(), type, i));
  }
  return result;
}

AllReduceConfig Config(size_t ranks, size_t count) {
  AllReduceConfig config;
  config.ranks = ranks;
  config.count = count;
  config.block = 64;
  return config;
}

// sum of outputs + mean worker residual + server residual == sum of mean inputs.
void ExpectNothingLost(const AllReduceConfig& config, double tolerance) {
  SCOPED_TRACE(testing::Message() << config.ranks << " ranks, " << config.count
                                  << " elements, seed " << kSeed);
  std::mt19937 random(kSeed);
  AllReduceModel model(config);
  std::vector<double> in(config.count), out(config.count);
  double largest = 0;
  for (int call = 0; call < 5; ++call) {
    const Inputs inputs(config.ranks, config.count, config.type, random);
    const RunResult result = Simulate(model, inputs, config.type);
    ASSERT_TRUE(result.is_finite);
    for (size_t i = 0; i < config.count; ++i) {
      in[i] += inputs.Mean(i);
      out[i] += result.values[i] / (config.is_sum ? static_cast<double>(config.ranks) : 1.0);
    }
  }
  for (size_t rank = 0; rank < config.ranks; ++rank) {
    const std::vector<float> residual = model.worker_residual(rank);
    for (size_t i = 0; i < config.count; ++i) {
      out[i] += residual[i] / static_cast<double>(config.ranks);
      largest = std::max(largest, std::abs(static_cast<double>(residual[i])));
    }
  }
  const std::vector<float> server = model.server_residual();
  for (size_t i = 0; i < config.count; ++i) largest = std::max(largest, std::abs(in[i]));
  for (size_t i = 0; i < config.count; ++i) {
    ASSERT_NEAR(out[i] + server[i], in[i], tolerance * largest) << "element " << i;
  }
}

TEST(AllReduceModelTest, CutsEqualChunksThatMayBeShortOrEmpty) {
  const size_t expected[4][2] = {{0, 8}, {8, 10}, {10, 10}, {10, 10}};
  for (size_t rank = 0; rank < 4; ++rank) {
    const ChunkRange range = ChunkOf(10, 4, 8, rank);
    EXPECT_EQ(range.begin, expected[rank][0]);
    EXPECT_EQ(range.end, expected[rank][1]);
  }
  EXPECT_EQ(ChunkOf(129, 2, 64, 0).size(), 128u);
  EXPECT_EQ(ChunkOf(128, 2, 64, 0).size(), 64u);
  EXPECT_EQ(ChunkOf(0, 3, 64, 2).size(), 0u);
}

TEST(AllReduceModelTest, LosesNothingInBlockMode) {
  for (size_t ranks : {2, 3, 4, 7, 9}) {
    for (size_t count : {0, 1, 7, 8, 9, 63, 64, 65, 500, 1000}) {
      ExpectNothingLost(Config(ranks, count), 1e-5);
    }
  }
}

TEST(AllReduceModelTest, LosesNothingInTensorMode) {
  for (size_t count : {1, 130, 9000}) {
    AllReduceConfig config = Config(3, count);
    config.block = 0;
    ExpectNothingLost(config, 1e-5);
  }
}

TEST(AllReduceModelTest, LosesNothingWhenTheOutputTypeIsShort) {
  for (DataType type : {DataType::kF16, DataType::kBf16}) {
    for (bool is_sum : {false, true}) {
      AllReduceConfig config = Config(3, 333);
      config.type = type;
      config.is_sum = is_sum;
      ExpectNothingLost(config, 1e-5);
    }
  }
}

TEST(AllReduceModelTest, LosesLittleWithShortResiduals) {
  AllReduceConfig config = Config(3, 333);
  config.residual_type = DataType::kBf16;
  ExpectNothingLost(config, 5e-2);
}

TEST(AllReduceModelTest, SumIsRanksTimesMean) {
  std::mt19937 random(kSeed);
  const Inputs inputs(4, 300, DataType::kF32, random);
  AllReduceConfig config = Config(4, 300);
  AllReduceModel mean(config);
  config.is_sum = true;
  AllReduceModel sum(config);
  const RunResult means = Simulate(mean, inputs, DataType::kF32);
  const RunResult sums = Simulate(sum, inputs, DataType::kF32);
  // Multiplication by 4 is exact, and so is what the server keeps.
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(sums.values[i], 4 * means.values[i]);
  EXPECT_EQ(sum.server_residual(), mean.server_residual());
}

TEST(AllReduceModelTest, ThreadsChangeNothing) {
  std::mt19937 random(kSeed);
  const Inputs inputs(5, 1000, DataType::kF32, random);
  AllReduceConfig config = Config(5, 1000);
  AllReduceModel alone(config);
  config.threads = 4;
  AllReduceModel together(config);
  EXPECT_EQ(Simulate(alone, inputs, config.type).values,
            Simulate(together, inputs, config.type).values);
  EXPECT_EQ(alone.worker_residual(4), together.worker_residual(4));
  EXPECT_EQ(alone.server_residual(), together.server_residual());
}

TEST(AllReduceModelTest, SignModeRemembersNothing) {
  std::mt19937 random(kSeed);
  const Inputs inputs(3, 200, DataType::kF32, random);
  AllReduceConfig config = Config(3, 200);
  config.has_feedback = false;
  AllReduceModel model(config);
  const RunResult first = Simulate(model, inputs, config.type);
  EXPECT_EQ(first.values, Simulate(model, inputs, config.type).values);
  EXPECT_EQ(model.worker_residual(1), std::vector<float>(200, 0.0f));
  EXPECT_EQ(model.server_residual(), std::vector<float>(200, 0.0f));
}

TEST(AllReduceModelTest, ServerResidualCanBeOff) {
  std::mt19937 random(kSeed);
  const Inputs inputs(3, 200, DataType::kF32, random);
  AllReduceConfig config = Config(3, 200);
  config.has_server_residual = false;
  AllReduceModel model(config);
  Simulate(model, inputs, config.type);
  EXPECT_EQ(model.server_residual(), std::vector<float>(200, 0.0f));
  EXPECT_NE(model.worker_residual(0), std::vector<float>(200, 0.0f));
}

TEST(AllReduceModelTest, OneRankIsTheIdentity) {
  std::mt19937 random(kSeed);
  Inputs inputs(1, 100, DataType::kF32, random);
  AllReduceModel model(Config(1, 100));
  const RunResult result = Simulate(model, inputs, DataType::kF32);
  EXPECT_TRUE(result.is_finite);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(result.values[i], inputs.Get(0, i));
  EXPECT_EQ(model.worker_residual(0), std::vector<float>(100, 0.0f));

  inputs.Set(0, 3, std::numeric_limits<float>::infinity());
  const RunResult bad = Simulate(model, inputs, DataType::kF32);
  EXPECT_FALSE(bad.is_finite);
  for (const float value : bad.values) EXPECT_TRUE(std::isnan(value));

  std::vector<uint8_t> mask(13, 0xff);
  mask[0] = 0xf7;  // not element 3
  model.SetMask(mask);
  const RunResult masked = Simulate(model, inputs, DataType::kF32);
  EXPECT_TRUE(masked.is_finite);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(masked.values[i], i == 3 ? 0 : inputs.Get(0, i));
}

TEST(AllReduceModelTest, NonFiniteCallChangesNoResidual) {
  for (size_t block : {size_t{64}, size_t{0}}) {
    std::mt19937 random(kSeed);
    AllReduceConfig config = Config(3, 200);
    config.block = block;
    AllReduceModel model(config), undisturbed(config);
    const Inputs first(3, 200, config.type, random), second(3, 200, config.type, random);
    Inputs bad = second;
    bad.Set(2, 150, std::numeric_limits<float>::quiet_NaN());

    Simulate(model, first, config.type);
    Simulate(undisturbed, first, config.type);
    const RunResult result = Simulate(model, bad, config.type);
    EXPECT_FALSE(result.is_finite);
    for (float value : result.values) EXPECT_TRUE(std::isnan(value));
    EXPECT_EQ(Simulate(model, second, config.type).values,
              Simulate(undisturbed, second, config.type).values);
  }
}

TEST(AllReduceModelTest, NonFiniteCallResetsWithoutTransactions) {
  std::mt19937 random(kSeed);
  AllReduceConfig config = Config(2, 100);
  config.is_transactional = false;
  AllReduceModel model(config);
  Inputs inputs(2, 100, config.type, random);
  Simulate(model, inputs, config.type);
  inputs.Set(0, 0, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(Simulate(model, inputs, config.type).is_finite);
  EXPECT_EQ(model.worker_residual(1), std::vector<float>(100, 0.0f));
  EXPECT_EQ(model.server_residual(), std::vector<float>(100, 0.0f));
}

TEST(AllReduceModelTest, OutputOverflowIsNonFinite) {
  std::mt19937 random(kSeed);
  AllReduceConfig config = Config(4, 100);
  config.type = DataType::kF16;
  config.is_sum = true;
  Inputs inputs(4, 100, config.type, random);
  for (size_t rank = 0; rank < 4; ++rank) {
    for (size_t i = 0; i < 100; ++i) inputs.Set(rank, i, 30000);
  }
  AllReduceModel model(config);
  EXPECT_FALSE(Simulate(model, inputs, config.type).is_finite);  // 120000 is no fp16
  EXPECT_EQ(model.worker_residual(0), std::vector<float>(100, 0.0f));
}

TEST(AllReduceModelTest, MaskedElementsAreZeroAndInNoScale) {
  std::mt19937 random(kSeed);
  AllReduceConfig config = Config(2, 200);
  config.mask.assign(25, 0xff);
  config.mask[1] = 0;      // elements 8 to 15
  config.mask[20] = 0xfe;  // element 160, in the second chunk
  const auto is_masked = [](size_t i) { return (i >= 8 && i < 16) || i == 160; };
  AllReduceModel model(config);
  Inputs inputs(2, 200, config.type, random);
  Inputs other = inputs;
  for (size_t i = 8; i < 16; ++i) other.Set(0, i, std::numeric_limits<float>::quiet_NaN());
  other.Set(1, 160, 1e30f);

  const RunResult result = Simulate(model, inputs, config.type);
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(result.values[i] == 0, is_masked(i)) << i;
  for (size_t i = 0; i < 200; ++i) {
    if (is_masked(i)) {
      EXPECT_EQ(model.worker_residual(1)[i], 0) << i;
    }
  }
  AllReduceModel another(config);
  EXPECT_EQ(Simulate(another, other, config.type).values, result.values);

  another.SetMask({});
  EXPECT_TRUE(Simulate(another, inputs, config.type).is_finite);
}

TEST(DenseAllReduceTest, AddsInRankOrderAndRoundsOnce) {
  const float inputs[3][2] = {{1, 0x1p24f}, {0x1p-24f, 1}, {0x1p-24f, -0x1p24f}};
  const void* pointers[] = {inputs[0], inputs[1], inputs[2]};
  float output[2];
  DenseAllReduce(pointers, 2, DataType::kF32, DenseOp::kSum, output);
  EXPECT_EQ(output[0], 1.0f);  // each addend alone is half a unit in the last place
  EXPECT_EQ(output[1], 0.0f);
  const float thirds[3][1] = {{1}, {2}, {4}};
  const void* third_pointers[] = {thirds[0], thirds[1], thirds[2]};
  DenseAllReduce(third_pointers, 1, DataType::kF32, DenseOp::kAverage, output);
  EXPECT_EQ(output[0], 7.0f / 3.0f);
}

}  // namespace
}  // namespace onebit::model
