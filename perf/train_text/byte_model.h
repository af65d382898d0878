// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The multilayer perceptron over bytes: embeddings of the preceding bytes, two hidden layers,
// softmax.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "perf/train_text/counter_random.h"
#include "perf/train_text/model.h"

namespace onebit::train {

/** Its tensors, by number. */
enum class ByteTensor { kEmbedding, kWeight1, kBias1, kWeight2, kBias2, kWeight3, kBias3 };

/** Layers are embedding and first layer, second layer, third. */
inline ModelLayout ByteModelLayout(const ModelShape& shape) {
  return ModelLayout(
      {{{"embedding", shape.embedding, kByteValues},
        {"weight1", shape.hidden[0], shape.context * shape.embedding},
        {"bias1", shape.hidden[0], 1}},
       {{"weight2", shape.hidden[1], shape.hidden[0]}, {"bias2", shape.hidden[1], 1}},
       {{"weight3", kByteValues, shape.hidden[1]}, {"bias3", kByteValues, 1}}});
}

/** Buffers of the forward and backward pass for up to `capacity` examples. Not thread-safe. */
template <typename Scalar>
class ByteModel final : public Model<Scalar> {
 public:
  using typename Model<Scalar>::OnLayer;

  ByteModel(const ModelShape& shape, int capacity)
      : shape_(shape),
        layout_(ByteModelLayout(shape)),
        input_(shape.context * shape.embedding, capacity),
        input_gradient_(input_.rows(), capacity),
        logits_(kByteValues, capacity) {
    for (size_t layer = 0; layer < hidden_.size(); ++layer) {
      hidden_[layer].resize(shape.hidden[layer], capacity);
      hidden_gradient_[layer].resize(shape.hidden[layer], capacity);
    }
  }

  const ModelLayout& layout() const override { return layout_; }
  int predictions() const override { return 1; }
  void Initialize(uint64_t seed, std::span<Scalar> parameters) const override;
  double LossSum(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                 std::span<const size_t> positions) override;
  double MeanLossAndGradient(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                             std::span<const size_t> positions, std::span<Scalar> gradient,
                             const OnLayer& on_layer = {}) override;

 private:
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
  using ConstMap = Eigen::Map<const Matrix>;
  using MutableMap = Eigen::Map<Matrix>;

  const Tensor& tensor_at(ByteTensor index) const {
    return layout_.tensors()[static_cast<size_t>(index)];
  }
  ConstMap View(std::span<const Scalar> flat, ByteTensor index) const {
    const Tensor& tensor = tensor_at(index);
    return {flat.data() + tensor.offset, tensor.rows, tensor.cols};
  }
  MutableMap View(std::span<Scalar> flat, ByteTensor index) const {
    const Tensor& tensor = tensor_at(index);
    return {flat.data() + tensor.offset, tensor.rows, tensor.cols};
  }

  /**
   * Applies ReLU in place. It keeps NaN, which a maximum with 0 may lose: a diverged model has to
   * show.
   */
  template <typename Columns>
  static void Rectify(Columns&& columns) {
    Scalar* values = columns.data();
    for (Eigen::Index i = 0; i < columns.size(); ++i) values[i] = values[i] < 0 ? 0 : values[i];
  }

  void Gather(std::span<const Scalar> parameters, std::span<const uint8_t> text,
              std::span<const size_t> positions);
  double Forward(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                 std::span<const size_t> positions);

  ModelShape shape_;
  ModelLayout layout_;
  // One column per example.
  Matrix input_, input_gradient_;
  std::array<Matrix, 2> hidden_, hidden_gradient_;
  Matrix logits_;  // after Forward: probabilities; in the backward pass: their gradient
};

template <typename Scalar>
void ByteModel<Scalar>::Initialize(uint64_t seed, std::span<Scalar> parameters) const {
  const CounterRandom random(seed, RandomStream::kParameters, 0);
  for (size_t t = 0; t < layout_.tensors().size(); ++t) {
    const Tensor& tensor = layout_.tensors()[t];
    const auto index = static_cast<ByteTensor>(t);
    double deviation = 0;  // of biases
    if (index == ByteTensor::kEmbedding) {
      deviation = 0.1;  // 1 learns slower at first, 0.01 as well
    } else if (tensor.cols > 1) {
      const double gain = index == ByteTensor::kWeight3 ? 1 : 2;
      deviation = std::sqrt(gain / tensor.cols);
    }
    for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
      parameters[i] = static_cast<Scalar>(deviation == 0 ? 0 : deviation * random.Normal(i));
    }
  }
}

template <typename Scalar>
double ByteModel<Scalar>::LossSum(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                                  std::span<const size_t> positions) {
  return Forward(parameters, text, positions);
}

template <typename Scalar>
double ByteModel<Scalar>::MeanLossAndGradient(std::span<const Scalar> parameters,
                                              std::span<const uint8_t> text,
                                              std::span<const size_t> positions,
                                              std::span<Scalar> gradient, const OnLayer& on_layer) {
  const double loss_sum = Forward(parameters, text, positions);
  const auto batch = static_cast<Eigen::Index>(positions.size());
  const auto input = input_.leftCols(batch);
  const auto hidden1 = hidden_[0].leftCols(batch);
  const auto hidden2 = hidden_[1].leftCols(batch);
  auto logits = logits_.leftCols(batch);
  auto input_gradient = input_gradient_.leftCols(batch);
  auto gradient1 = hidden_gradient_[0].leftCols(batch);
  auto gradient2 = hidden_gradient_[1].leftCols(batch);

  // d loss / d logits = (probabilities - one-hot target) / batch
  for (Eigen::Index b = 0; b < batch; ++b) logits(text[positions[b]], b) -= Scalar(1);
  logits *= Scalar(1) / static_cast<Scalar>(batch);

  View(gradient, ByteTensor::kWeight3).noalias() = logits * hidden2.transpose();
  View(gradient, ByteTensor::kBias3) = logits.rowwise().sum();
  gradient2.noalias() = View(parameters, ByteTensor::kWeight3).transpose() * logits;
  if (on_layer) on_layer(2);
  gradient2.array() *= (hidden2.array() > Scalar(0)).template cast<Scalar>();

  View(gradient, ByteTensor::kWeight2).noalias() = gradient2 * hidden1.transpose();
  View(gradient, ByteTensor::kBias2) = gradient2.rowwise().sum();
  gradient1.noalias() = View(parameters, ByteTensor::kWeight2).transpose() * gradient2;
  if (on_layer) on_layer(1);
  gradient1.array() *= (hidden1.array() > Scalar(0)).template cast<Scalar>();

  View(gradient, ByteTensor::kWeight1).noalias() = gradient1 * input.transpose();
  View(gradient, ByteTensor::kBias1) = gradient1.rowwise().sum();
  input_gradient.noalias() = View(parameters, ByteTensor::kWeight1).transpose() * gradient1;

  // The embedding is a product with one-hot columns: its gradient is a scatter.
  MutableMap embedding_gradient = View(gradient, ByteTensor::kEmbedding);
  embedding_gradient.setZero();
  for (Eigen::Index b = 0; b < batch; ++b) {
    const uint8_t* context = &text[positions[b] - static_cast<size_t>(shape_.context)];
    for (int c = 0; c < shape_.context; ++c) {
      embedding_gradient.col(context[c]) +=
          input_gradient.col(b).segment(c * shape_.embedding, shape_.embedding);
    }
  }
  if (on_layer) on_layer(0);
  return loss_sum / static_cast<double>(batch);
}

template <typename Scalar>
void ByteModel<Scalar>::Gather(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                               std::span<const size_t> positions) {
  const ConstMap embedding = View(parameters, ByteTensor::kEmbedding);
  for (size_t b = 0; b < positions.size(); ++b) {
    const uint8_t* context = &text[positions[b] - static_cast<size_t>(shape_.context)];
    auto column = input_.col(static_cast<Eigen::Index>(b));
    for (int c = 0; c < shape_.context; ++c) {
      column.segment(c * shape_.embedding, shape_.embedding) = embedding.col(context[c]);
    }
  }
}

template <typename Scalar>
double ByteModel<Scalar>::Forward(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                                  std::span<const size_t> positions) {
  const auto batch = static_cast<Eigen::Index>(positions.size());
  Gather(parameters, text, positions);
  auto hidden1 = hidden_[0].leftCols(batch);
  auto hidden2 = hidden_[1].leftCols(batch);
  auto logits = logits_.leftCols(batch);

  hidden1.noalias() = View(parameters, ByteTensor::kWeight1) * input_.leftCols(batch);
  hidden1.colwise() += View(parameters, ByteTensor::kBias1).col(0);
  Rectify(hidden1);
  hidden2.noalias() = View(parameters, ByteTensor::kWeight2) * hidden1;
  hidden2.colwise() += View(parameters, ByteTensor::kBias2).col(0);
  Rectify(hidden2);
  logits.noalias() = View(parameters, ByteTensor::kWeight3) * hidden2;
  logits.colwise() += View(parameters, ByteTensor::kBias3).col(0);

  // Softmax and cross entropy, column by column. Subtracting the maximum keeps exp from
  // overflowing.
  double loss_sum = 0;
  for (Eigen::Index b = 0; b < batch; ++b) {
    auto column = logits.col(b).array();
    const Scalar target = logits(text[positions[b]], b);
    const Scalar maximum = column.maxCoeff();
    column = (column - maximum).exp();
    const Scalar sum = column.sum();
    loss_sum += static_cast<double>(maximum - target) + std::log(static_cast<double>(sum));
    column *= Scalar(1) / sum;
  }
  return loss_sum;
}

}  // namespace onebit::train
