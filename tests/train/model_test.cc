// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The gradient against finite differences in double precision, and the loss against known values.
#include "perf/train_text/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "perf/train_text/byte_model.h"
#include "perf/train_text/counter_random.h"

namespace onebit::train {
namespace {

constexpr ModelShape kSmallMlp{.context = 3, .embedding = 4, .hidden = {7, 5}};
constexpr ModelShape kSmallTransformer{
    .kind = ModelKind::kTransformer, .context = 3, .embedding = 8, .blocks = 2, .heads = 2};
constexpr std::array kShapes = {kSmallMlp, kSmallTransformer};
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
  std::unique_ptr<Model<Scalar>> model;
  std::vector<uint8_t> text = SmallText();
  std::vector<size_t> positions = SmallPositions();
  std::vector<Scalar> parameters;

  explicit Problem(uint64_t seed, const ModelShape& shape = kSmallMlp)
      : model(MakeModel<Scalar>(shape, kBatch)), parameters(model->layout().parameter_count()) {
    model->Initialize(seed, parameters);
    // Biases start at 0, where a wrong sign would go unnoticed, and gains at 1.
    const CounterRandom random(seed, RandomStream::kBatches, 1);
    for (const Tensor& tensor : model->layout().tensors()) {
      if (!tensor.is_vector()) continue;
      for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
        parameters[i] += static_cast<Scalar>(0.1 * random.Normal(i));
      }
    }
  }

  const Tensor& tensor(ByteTensor index) const {
    return model->layout().tensors()[static_cast<size_t>(index)];
  }

  double MeanLoss() {
    return model->LossSum(parameters, text, positions) /
           static_cast<double>(positions.size() * static_cast<size_t>(model->predictions()));
  }

  std::vector<Scalar> Gradient() {
    // Earlier content must not matter.
    std::vector<Scalar> gradient(parameters.size(), std::numeric_limits<Scalar>::quiet_NaN());
    model->MeanLossAndGradient(parameters, text, positions, gradient);
    return gradient;
  }
};

class GradientTest : public testing::TestWithParam<std::tuple<uint64_t, ModelShape>> {};

TEST_P(GradientTest, EqualsFiniteDifferences) {
  Problem<double> problem(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const std::vector<double> gradient = problem.Gradient();
  constexpr double kStep = 1e-6;
  for (const Tensor& tensor : problem.model->layout().tensors()) {
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

INSTANTIATE_TEST_SUITE_P(Seeds, GradientTest,
                         testing::Combine(testing::Values(1, 2, 3), testing::ValuesIn(kShapes)),
                         [](const auto& test) {
                           const bool is_mlp = std::get<1>(test.param).kind == ModelKind::kMlp;
                           return (is_mlp ? "mlp" : "transformer") +
                                  std::to_string(std::get<0>(test.param));
                         });

class EveryModelTest : public testing::TestWithParam<ModelShape> {};

INSTANTIATE_TEST_SUITE_P(Models, EveryModelTest, testing::ValuesIn(kShapes), [](const auto& test) {
  return test.param.kind == ModelKind::kMlp ? "mlp" : "transformer";
});

TEST_P(EveryModelTest, FloatGradientIsTheRoundedDoubleGradient) {
  Problem<float> rounded(1, GetParam());
  Problem<double> exact(1, GetParam());
  std::copy(rounded.parameters.begin(), rounded.parameters.end(), exact.parameters.begin());
  const std::vector<float> gradient = rounded.Gradient();
  const std::vector<double> expected = exact.Gradient();
  for (size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(gradient[i], expected[i], 1e-6) << i;
}

TEST_P(EveryModelTest, MeanLossIsThatOfTheForwardPass) {
  Problem<double> problem(1, GetParam());
  std::vector<double> gradient(problem.parameters.size());
  EXPECT_DOUBLE_EQ(problem.model->MeanLossAndGradient(problem.parameters, problem.text,
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
  const Tensor& bias = problem.tensor(ByteTensor::kBias3);
  problem.parameters[bias.offset] = 1e4F;  // byte 0, which the text does not have
  EXPECT_NEAR(problem.MeanLoss(), 1e4, 50);
}

TEST_P(EveryModelTest, NanInAnyLayerShowsInTheLoss) {
  const ModelLayout layout = LayoutOf(GetParam());
  for (const Tensor& tensor : layout.tensors()) {
    if (tensor.name == "embedding") continue;  // most of its columns are not in use
    Problem<float> problem(1, GetParam());
    problem.parameters[tensor.offset] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(problem.MeanLoss())) << tensor.name;
  }
}

// Layers are complete from the last to the first: what on_layer sees is what is there at the end.
TEST_P(EveryModelTest, LayersAreCompleteWhenTheyAreSaidToBe) {
  Problem<double> problem(1, GetParam());
  const ModelLayout& layout = problem.model->layout();
  std::vector<double> gradient(problem.parameters.size());
  std::vector<double> seen(gradient.size());
  std::vector<size_t> layers;
  problem.model->MeanLossAndGradient(
      problem.parameters, problem.text, problem.positions, gradient, [&](size_t layer) {
        layers.push_back(layer);
        for (const Tensor& tensor : layout.LayerTensors(layer)) {
          for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
            seen[i] = gradient[i];
            problem.parameters[i] =
                std::numeric_limits<double>::quiet_NaN();  // not needed any more
          }
        }
      });
  EXPECT_EQ(seen, gradient);
  ASSERT_EQ(layers.size(), layout.layers());
  for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i], layers.size() - 1 - i);
  EXPECT_TRUE(
      std::none_of(gradient.begin(), gradient.end(), [](double g) { return std::isnan(g); }));
}

TEST_P(EveryModelTest, ASmallerBatchThanTheCapacityGivesTheSameLosses) {
  Problem<double> problem(1, GetParam());
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

TEST(TransformerTest, NoByteSeesWhatItPredicts) {
  Problem<double> problem(1, kSmallTransformer);
  problem.positions = {10};  // bytes 7 to 9 predict 8 to 10
  const auto loss = [&] {
    return problem.model->LossSum(problem.parameters, problem.text, problem.positions);
  };
  const double before = loss();
  for (const size_t outside : {size_t{6}, size_t{11}}) {
    problem.text[outside] ^= 1;
    EXPECT_EQ(loss(), before) << outside;
  }

  // The same model with a shorter window, which has not seen byte 9.
  ModelShape shape = kSmallTransformer;
  --shape.context;
  Problem<double> shorter(1, shape);
  shorter.positions = {9};
  shorter.text = problem.text;
  for (size_t i = 0; i < shorter.model->layout().tensors().size(); ++i) {
    const Tensor& to = shorter.model->layout().tensors()[i];
    const size_t from = problem.model->layout().tensors()[i].offset;
    for (size_t k = 0; k < to.count(); ++k) {
      shorter.parameters[to.offset + k] = problem.parameters[from + k];
    }
  }
  const double of_bytes_before =
      shorter.model->LossSum(shorter.parameters, shorter.text, shorter.positions);
  double probability = 0;
  for (int byte = 0; byte < kByteValues; ++byte) {
    problem.text[10] = static_cast<uint8_t>(byte);
    probability += std::exp(of_bytes_before - loss());
  }
  EXPECT_NEAR(probability, 1, 1e-12);
}

TEST(ModelLayoutTest, TensorsFollowOneAnotherWithoutGaps) {
  for (const auto& [kind, parameters] :
       {std::pair{ModelKind::kMlp, 927'232U}, std::pair{ModelKind::kTransformer, 273'888U}}) {
    const ModelLayout layout = LayoutOf(DefaultShape(kind));
    size_t offset = 0;
    size_t in_layers = 0;
    for (const Tensor& tensor : layout.tensors()) {
      EXPECT_EQ(tensor.offset, offset) << tensor.name;
      offset += tensor.count();
    }
    for (size_t layer = 0; layer < layout.layers(); ++layer) {
      in_layers += layout.LayerTensors(layer).size();
    }
    EXPECT_EQ(in_layers, layout.tensors().size());
    EXPECT_EQ(layout.parameter_count(), parameters);
  }
}

TEST_P(EveryModelTest, InitialParametersDependOnTheSeedOnly) {
  const ModelShape shape = GetParam();
  EXPECT_EQ(Problem<float>(1, shape).parameters, Problem<float>(1, shape).parameters);
  EXPECT_NE(Problem<float>(1, shape).parameters, Problem<float>(2, shape).parameters);
}

}  // namespace
}  // namespace onebit::train
