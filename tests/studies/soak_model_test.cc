// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scalar model moves to other ranks as compressors do.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "perf/common/allreduce_model.h"

namespace onebit::model {
namespace {

using namespace kernels;

constexpr size_t kCount = 1000;
constexpr size_t kRanks = 3;

AllReduceConfig Config(bool is_sum) {
  AllReduceConfig config;
  config.ranks = kRanks;
  config.count = kCount;
  config.is_sum = is_sum;
  config.block = 64;
  return config;
}

using Values = std::vector<float>;

Values Input(int call, size_t rank) {
  Values values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    values[i] = std::sin(static_cast<float>(i * (rank + 2)) + static_cast<float>(call));
  }
  return values;
}

// One call of a model that was rebound to ranks `survivors`.
Values Call(AllReduceModel* model, int call, std::span<const size_t> survivors) {
  std::vector<Values> inputs;
  std::vector<const void*> pointers;
  for (const size_t rank : survivors) inputs.push_back(Input(call, rank));
  for (const Values& input : inputs) pointers.push_back(input.data());
  Values output(kCount);
  EXPECT_TRUE(model->Run(pointers, output.data()));
  return output;
}

constexpr std::array<size_t, kRanks> kAll = {0, 1, 2};
constexpr std::array<size_t, 2> kWithoutOne = {0, 2};

AllReduceModel ModelAfterCalls(bool is_sum) {
  AllReduceModel model(Config(is_sum));
  for (int call = 0; call < 3; ++call) Call(&model, call, kAll);
  return model;
}

TEST(SoakModelTest, GoesOnUnchangedOnTheSameRanks) {
  AllReduceModel model = ModelAfterCalls(true);
  AllReduceModel rebound = model.Rebound(kAll, false);
  EXPECT_EQ(model.LostElements(kAll, false), 0U);
  EXPECT_EQ(Call(&model, 3, kAll), Call(&rebound, 3, kAll));
}

TEST(SoakModelTest, LosesTheChunkOfARankThatIsGone) {
  const AllReduceModel model = ModelAfterCalls(false);
  const AllReduceModel rebound = model.Rebound(kWithoutOne, false);
  const ChunkRange lost = ChunkOf(kCount, kRanks, 64, 1);
  EXPECT_EQ(model.LostElements(kWithoutOne, false), lost.size());
  EXPECT_EQ(rebound.worker_residual(0), model.worker_residual(0));
  EXPECT_EQ(rebound.worker_residual(1), model.worker_residual(2));
  Values expected = model.server_residual();
  std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(lost.begin), lost.size(), 0.0f);
  EXPECT_EQ(rebound.server_residual(), expected);
}

TEST(SoakModelTest, LosesNothingWhereEveryRankHasAllChunks) {
  const AllReduceModel model = ModelAfterCalls(false);
  EXPECT_EQ(model.LostElements(kWithoutOne, true), 0U);
  EXPECT_EQ(model.Rebound(kWithoutOne, true).server_residual(), model.server_residual());
}

// The residual adds to a result of fewer ranks what it would have added to that of all.
TEST(SoakModelTest, KeepsWhatASumOwes) {
  const AllReduceModel model = ModelAfterCalls(true);
  Values expected = model.server_residual();
  for (float& value : expected) value *= 1.5f;
  EXPECT_EQ(model.Rebound(kWithoutOne, true).server_residual(), expected);
}

}  // namespace
}  // namespace onebit::model
