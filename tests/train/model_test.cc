// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The gradient against finite differences in double precision, and the loss against known values.
#include "perf/train_text/model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

namespace onebit::train {
namespace {

constexpr ModelShape kSmallShape{.context = 3, .embedding = 4, .hidden = {7, 5}};
constexpr int kBatch = 6;

/** Uses few byte values, so contexts repeat bytes and several examples share an embedding. */
std::vector<uint8_t> SmallText() {
  std::vector<uint8_t> text(40);
  const CounterRandom random(11, RandomStream::kBatches, 0);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(97 + random.Below(i, 5));
  return text;
}

std::vector<size_t> SmallPositions() { return {3, 4, 9, 17, 30, 39}; }

template <typename Scalar>
struct Problem {
  ByteModel<Scalar> model{kSmallShape, kBatch};
  std::vector<uint8_t> text = SmallText();
  std::vector<size_t> positions = SmallPositions();
  std::vector<Scalar> parameters = std::vector<Scalar>(model.layout().parameter_count());

  explicit Problem(uint64_t seed) {
    model.Initialize(seed, parameters);
    // Biases start at 0, where a wrong sign would go unnoticed.
    const CounterRandom random(seed, RandomStream::kBatches, 1);
    for (const auto bias : {ModelLayout::kBias1, ModelLayout::kBias2, ModelLayout::kBias3}) {
      const Tensor& tensor = model.layout().tensors[bias];
      for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
        parameters[i] = static_cast<Scalar>(0.1 * random.Normal(i));
      }
    }
  }

  double MeanLoss() {
    return model.LossSum(parameters, text, positions) / static_cast<double>(positions.size());
  }

  std::vector<Scalar> Gradient() {
    // Earlier content must not matter.
    std::vector<Scalar> gradient(parameters.size(), std::numeric_limits<Scalar>::quiet_NaN());
    model.MeanLossAndGradient(parameters, text, positions, gradient);
    return gradient;
  }
};

class GradientTest : public testing::TestWithParam<uint64_t> {};

TEST_P(GradientTest, EqualsFiniteDifferences) {
  Problem<double> problem(GetParam());
  const std::vector<double> gradient = problem.Gradient();
  constexpr double kStep = 1e-6;
  for (const Tensor& tensor : problem.model.layout().tensors) {
    size_t nonzero = 0;
    for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
      const double saved = problem.parameters[i];
      problem.parameters[i] = saved + kStep;
      const double above = problem.MeanLoss();
      problem.parameters[i] = saved - kStep;
      const double below = problem.MeanLoss();
      problem.parameters[i] = saved;
      ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8)
          << tensor.name << " element " << i - tensor.offset;
      nonzero += gradient[i] != 0 ? 1 : 0;
    }
    EXPECT_GT(nonzero, 0U) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GradientTest, testing::Values(1, 2, 3));

TEST(ModelTest, FloatGradientIsTheRoundedDoubleGradient) {
  Problem<float> rounded(1);
  Problem<double> exact(1);
  std::copy(rounded.parameters.begin(), rounded.parameters.end(), exact.parameters.begin());
  const std::vector<float> gradient = rounded.Gradient();
  const std::vector<double> expected = exact.Gradient();
  for (size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(gradient[i], expected[i], 1e-6) << i;
}

TEST(ModelTest, MeanLossIsThatOfTheForwardPass) {
  Problem<double> problem(1);
  std::vector<double> gradient(problem.parameters.size());
  EXPECT_DOUBLE_EQ(problem.model.MeanLossAndGradient(problem.parameters, problem.text,
                                                     problem.positions, gradient),
                   problem.MeanLoss());
}

TEST(ModelTest, ZeroParametersGuessEveryByteAlike) {
  Problem<double> problem(1);
  std::fill(problem.parameters.begin(), problem.parameters.end(), 0.0);
  EXPECT_NEAR(problem.MeanLoss(), std::log(256.0), 1e-12);
}

TEST(ModelTest, TheLossOfALargeBiasIsFinite) {
  Problem<float> problem(1);
  const Tensor& bias = problem.model.layout().tensors[ModelLayout::kBias3];
  problem.parameters[bias.offset] = 1e4F;  // byte 0, which the text does not have
  EXPECT_NEAR(problem.MeanLoss(), 1e4, 50);
}

TEST(ModelTest, NanInAnyLayerShowsInTheLoss) {
  for (const auto index : {ModelLayout::kWeight1, ModelLayout::kBias1, ModelLayout::kWeight2,
                           ModelLayout::kBias2, ModelLayout::kWeight3, ModelLayout::kBias3}) {
    Problem<float> problem(1);
    const Tensor& tensor = problem.model.layout().tensors[index];
    problem.parameters[tensor.offset] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(problem.MeanLoss())) << tensor.name;
  }
}

TEST(ModelTest, ASmallerBatchThanTheCapacityGivesTheSameLosses) {
  Problem<double> problem(1);
  const std::vector<size_t> all = problem.positions;
  double sum = 0;
  for (const size_t position : all) {
    problem.positions = {position};
    sum += problem.MeanLoss();
  }
  problem.positions = all;
  EXPECT_NEAR(problem.MeanLoss(), sum / static_cast<double>(all.size()), 1e-12);
}

TEST(ModelTest, TheContextIsOnlyWhatPrecedes) {
  Problem<double> problem(1);
  problem.positions = {10};
  const double loss = problem.MeanLoss();
  for (const size_t outside : {size_t{6}, size_t{11}}) {
    problem.text[outside] ^= 1;
    EXPECT_EQ(problem.MeanLoss(), loss) << outside;
  }
  problem.text[7] ^= 1;
  EXPECT_NE(problem.MeanLoss(), loss);
}

TEST(ModelLayoutTest, TensorsFollowOneAnotherWithoutGaps) {
  const ModelLayout layout{ModelShape{}};
  size_t offset = 0;
  for (const Tensor& tensor : layout.tensors) {
    EXPECT_EQ(tensor.offset, offset) << tensor.name;
    offset += tensor.count();
  }
  EXPECT_EQ(layout.parameter_count(), 927'232U);
}

TEST(ModelTest, InitialParametersDependOnTheSeedOnly) {
  EXPECT_EQ(Problem<float>(1).parameters, Problem<float>(1).parameters);
  EXPECT_NE(Problem<float>(1).parameters, Problem<float>(2).parameters);
}

}  // namespace
}  // namespace onebit::train
