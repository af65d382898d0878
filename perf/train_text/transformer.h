// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A small transformer over bytes: learned positions, blocks of causal self-attention and a GELU
// layer, each behind an RMS norm and beside a residual connection, and an untied softmax.
//
// A position p of the text is a window: the bytes p - context to p - 1 go in, and each of them
// predicts the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "perf/train_text/counter_random.h"
#include "perf/train_text/model.h"

namespace onebit::train {

/** Its tensors by number: the inputs, then kOfBlock tensors of each block, then the outputs. */
struct TransformerTensor {
  enum Input { kEmbedding, kPositions, kInputs };
  enum OfBlock { kGain1, kQkv, kProjection, kGain2, kWiden, kNarrow, kOfBlock };
  enum Output { kGain, kHead };
};

inline constexpr int kWidening = 4;  // from the width of a block to its GELU layer

/** Layers are the inputs, each block, and the outputs. */
inline ModelLayout TransformerLayout(const ModelShape& shape) {
  const int width = shape.embedding;
  std::vector<std::vector<Tensor>> layers = {
      {{"embedding", width, kByteValues}, {"positions", width, shape.context}}};
  for (int block = 1; block <= shape.blocks; ++block) {
    const std::string name = "block" + std::to_string(block) + ".";
    layers.push_back({{name + "gain1", width, 1},
                      {name + "qkv", 3 * width, width},
                      {name + "projection", width, width},
                      {name + "gain2", width, 1},
                      {name + "widen", kWidening * width, width},
                      {name + "narrow", width, kWidening * width}});
  }
  layers.push_back({{"gain", width, 1}, {"head", kByteValues, width}});
  return ModelLayout(layers);
}

/** The heads must divide the width. Windows are computed in groups, so any number fits. */
template <typename Scalar>
class Transformer final : public Model<Scalar> {
 public:
  using typename Model<Scalar>::OnLayer;

  explicit Transformer(const ModelShape& shape);

  const ModelLayout& layout() const override { return layout_; }
  int predictions() const override { return shape_.context; }
  void Initialize(uint64_t seed, std::span<Scalar> parameters) const override;
  double LossSum(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                 std::span<const size_t> positions) override;
  double MeanLossAndGradient(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                             std::span<const size_t> positions, std::span<Scalar> gradient,
                             const OnLayer& on_layer = {}) override;

 private:
  using Index = Eigen::Index;
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
  using Row = Eigen::Array<Scalar, 1, Eigen::Dynamic>;
  using ConstMap = Eigen::Map<const Matrix>;
  using MutableMap = Eigen::Map<Matrix>;
  using Columns = Eigen::Ref<Matrix>;
  using ConstColumns = Eigen::Ref<const Matrix>;

  /** Activations that the backward pass needs; one column per byte of the group. */
  struct Norm {
    Matrix normal;  // the input over its root mean square
    Row inverse;    // of that root mean square
    Matrix output;  // normal times gain
  };
  struct Block {
    Norm norm1, norm2;
    Matrix qkv;            // queries, keys and values, below one another
    Matrix probabilities;  // of keys, for each query: context columns per window and head
    Matrix attended;
    Matrix wide;       // before GELU
    Matrix slope;      // of GELU
    Matrix activated;  // after it
  };

  size_t OfBlock(int block, int tensor) const {
    return static_cast<size_t>(TransformerTensor::kInputs + block * TransformerTensor::kOfBlock +
                               tensor);
  }
  size_t OfOutput(int tensor) const { return OfBlock(shape_.blocks, tensor); }
  ConstMap View(std::span<const Scalar> flat, size_t index) const {
    const Tensor& tensor = layout_.tensors()[index];
    return {flat.data() + tensor.offset, tensor.rows, tensor.cols};
  }
  MutableMap View(std::span<Scalar> flat, size_t index) const {
    const Tensor& tensor = layout_.tensors()[index];
    return {flat.data() + tensor.offset, tensor.rows, tensor.cols};
  }

  static void Normalize(const ConstColumns& input, const ConstMap& gain, Norm* norm);
  /** Adds the gradient of the input to `sum`, and that of the gain to `gain_gradient`. */
  static void NormalizeBack(const Norm& norm, const ConstMap& gain, const ConstColumns& gradient,
                            Columns sum, MutableMap gain_gradient);
  void Attend(Index windows, Block* block) const;
  void AttendBack(Index windows, const Block& block, const ConstColumns& gradient,
                  Columns qkv_gradient);
  static void Gelu(Index columns, Block* block);

  /** Leaves probabilities of the next bytes in logits_. Returns the loss. */
  double Forward(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                 std::span<const size_t> windows);
  /** Adds to `gradient`, of a mean over `predictions` bytes. */
  void Backward(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                std::span<const size_t> windows, Scalar predictions, std::span<Scalar> gradient,
                const OnLayer& on_layer);

  /** Bytes of a group: what a second-level cache holds the activations of. */
  static constexpr int kGroupBytes = 256;

  ModelShape shape_;
  ModelLayout layout_;
  size_t group_;  // windows
  std::vector<Block> blocks_;
  Norm last_norm_;
  Matrix stream_;  // what blocks add to; in the backward pass: its gradient
  Matrix logits_;
  Matrix gradient_, wide_gradient_, qkv_gradient_;
  Matrix score_gradient_;
};

template <typename Scalar>
Transformer<Scalar>::Transformer(const ModelShape& shape)
    : shape_(shape),
      layout_(TransformerLayout(shape)),
      group_(static_cast<size_t>(std::max(1, kGroupBytes / shape.context))),
      blocks_(static_cast<size_t>(shape.blocks)) {
  const Index width = shape.embedding;
  const Index columns = static_cast<Index>(group_) * shape.context;
  const auto resize = [&](Norm* norm) {
    norm->normal.resize(width, columns);
    norm->inverse.resize(columns);
    norm->output.resize(width, columns);
  };
  for (Block& block : blocks_) {
    resize(&block.norm1);
    resize(&block.norm2);
    block.qkv.resize(3 * width, columns);
    block.probabilities.resize(shape.context, columns * shape.heads);
    block.attended.resize(width, columns);
    block.wide.resize(kWidening * width, columns);
    block.slope.resize(kWidening * width, columns);
    block.activated.resize(kWidening * width, columns);
  }
  resize(&last_norm_);
  stream_.resize(width, columns);
  logits_.resize(kByteValues, columns);
  gradient_.resize(width, columns);
  wide_gradient_.resize(kWidening * width, columns);
  qkv_gradient_.resize(3 * width, columns);
  score_gradient_.resize(shape.context, shape.context);
}

template <typename Scalar>
void Transformer<Scalar>::Initialize(uint64_t seed, std::span<Scalar> parameters) const {
  const CounterRandom random(seed, RandomStream::kParameters, 0);
  for (size_t index = 0; index < layout_.tensors().size(); ++index) {
    const Tensor& tensor = layout_.tensors()[index];
    double deviation = 1 / std::sqrt(tensor.cols);
    if (index < TransformerTensor::kInputs) deviation = 0.1;
    // What blocks add to the stream begins small, so that its variance does not grow with them.
    if (tensor.name.ends_with("projection") || tensor.name.ends_with("narrow")) {
      deviation /= std::sqrt(2.0 * shape_.blocks);
    }
    for (size_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
      parameters[i] = static_cast<Scalar>(tensor.is_vector() ? 1 : deviation * random.Normal(i));
    }
  }
}

template <typename Scalar>
double Transformer<Scalar>::LossSum(std::span<const Scalar> parameters,
                                    std::span<const uint8_t> text,
                                    std::span<const size_t> positions) {
  double sum = 0;
  for (size_t first = 0; first < positions.size(); first += group_) {
    const size_t count = std::min(group_, positions.size() - first);
    sum += Forward(parameters, text, positions.subspan(first, count));
  }
  return sum;
}

template <typename Scalar>
double Transformer<Scalar>::MeanLossAndGradient(std::span<const Scalar> parameters,
                                                std::span<const uint8_t> text,
                                                std::span<const size_t> positions,
                                                std::span<Scalar> gradient,
                                                const OnLayer& on_layer) {
  const auto predictions = static_cast<double>(positions.size()) * shape_.context;
  std::fill(gradient.begin(), gradient.end(), Scalar(0));
  double sum = 0;
  for (size_t first = 0; first < positions.size(); first += group_) {
    const size_t count = std::min(group_, positions.size() - first);
    const std::span<const size_t> windows = positions.subspan(first, count);
    const bool is_last = first + count == positions.size();
    sum += Forward(parameters, text, windows);
    Backward(parameters, text, windows, static_cast<Scalar>(predictions), gradient,
             is_last ? on_layer : OnLayer());
  }
  return sum / predictions;
}

template <typename Scalar>
void Transformer<Scalar>::Normalize(const ConstColumns& input, const ConstMap& gain, Norm* norm) {
  constexpr Scalar kEpsilon = Scalar(1e-6);
  const Index columns = input.cols();
  norm->inverse.head(columns) =
      (input.colwise().squaredNorm().array() / static_cast<Scalar>(input.rows()) + kEpsilon)
          .sqrt()
          .inverse();
  for (Index c = 0; c < columns; ++c) norm->normal.col(c) = input.col(c) * norm->inverse(c);
  norm->output.leftCols(columns).noalias() =
      gain.col(0).asDiagonal() * norm->normal.leftCols(columns);
}

template <typename Scalar>
void Transformer<Scalar>::NormalizeBack(const Norm& norm, const ConstMap& gain,
                                        const ConstColumns& gradient, Columns sum,
                                        MutableMap gain_gradient) {
  const auto width = static_cast<Scalar>(gradient.rows());
  for (Index c = 0; c < gradient.cols(); ++c) {
    const auto normal = norm.normal.col(c).array();
    const auto in = gradient.col(c).array();
    gain_gradient.col(0).array() += in * normal;
    const Scalar along = (in * gain.col(0).array() * normal).sum() / width;
    sum.col(c).array() += norm.inverse(c) * (in * gain.col(0).array() - along * normal);
  }
}

template <typename Scalar>
void Transformer<Scalar>::Attend(Index windows, Block* block) const {
  const Index context = shape_.context, width = shape_.embedding, heads = shape_.heads;
  const Index depth = width / heads;
  const Scalar scale = Scalar(1) / std::sqrt(static_cast<Scalar>(depth));
  for (Index window = 0; window < windows; ++window) {
    const Index first = window * context;
    for (Index head = 0; head < heads; ++head) {
      const auto query = block->qkv.block(head * depth, first, depth, context);
      const auto key = block->qkv.block(width + head * depth, first, depth, context);
      const auto value = block->qkv.block(2 * width + head * depth, first, depth, context);
      auto shares = block->probabilities.middleCols((window * heads + head) * context, context);
      shares.noalias() = key.transpose() * query;
      for (Index q = 0; q < context; ++q) {
        auto seen = shares.col(q).head(q + 1).array();
        const Scalar maximum = seen.maxCoeff();
        seen = ((seen - maximum) * scale).exp();
        seen *= Scalar(1) / seen.sum();
        shares.col(q).tail(context - q - 1).setZero();
      }
      block->attended.block(head * depth, first, depth, context).noalias() = value * shares;
    }
  }
}

template <typename Scalar>
void Transformer<Scalar>::AttendBack(Index windows, const Block& block,
                                     const ConstColumns& gradient, Columns qkv_gradient) {
  const Index context = shape_.context, width = shape_.embedding, heads = shape_.heads;
  const Index depth = width / heads;
  const Scalar scale = Scalar(1) / std::sqrt(static_cast<Scalar>(depth));
  for (Index window = 0; window < windows; ++window) {
    const Index first = window * context;
    for (Index head = 0; head < heads; ++head) {
      const auto query = block.qkv.block(head * depth, first, depth, context);
      const auto key = block.qkv.block(width + head * depth, first, depth, context);
      const auto value = block.qkv.block(2 * width + head * depth, first, depth, context);
      const auto shares =
          block.probabilities.middleCols((window * heads + head) * context, context);
      const auto out = gradient.block(head * depth, first, depth, context);
      qkv_gradient.block(2 * width + head * depth, first, depth, context).noalias() =
          out * shares.transpose();
      score_gradient_.noalias() = value.transpose() * out;
      for (Index q = 0; q < context; ++q) {
        auto column = score_gradient_.col(q).array();
        const Scalar along = (column * shares.col(q).array()).sum();
        column = scale * shares.col(q).array() * (column - along);
      }
      qkv_gradient.block(head * depth, first, depth, context).noalias() = key * score_gradient_;
      qkv_gradient.block(width + head * depth, first, depth, context).noalias() =
          query * score_gradient_.transpose();
    }
  }
}

// GELU in its approximation by tanh (Hendrycks and Gimpel 2016).
template <typename Scalar>
void Transformer<Scalar>::Gelu(Index columns, Block* block) {
  constexpr Scalar kCubic = Scalar(0.044715);
  const Scalar outer = std::sqrt(Scalar(2) / std::numbers::pi_v<Scalar>);
  const auto x = block->wide.leftCols(columns).array();
  auto tanh = block->slope.leftCols(columns).array();
  tanh = (outer * x * (Scalar(1) + kCubic * x.square())).tanh();
  block->activated.leftCols(columns).array() = Scalar(0.5) * x * (Scalar(1) + tanh);
  tanh = Scalar(0.5) * (Scalar(1) + tanh) + Scalar(0.5) * outer * x * (Scalar(1) - tanh.square()) *
                                                (Scalar(1) + 3 * kCubic * x.square());
}

template <typename Scalar>
double Transformer<Scalar>::Forward(std::span<const Scalar> parameters,
                                    std::span<const uint8_t> text,
                                    std::span<const size_t> windows) {
  using T = TransformerTensor;
  const Index context = shape_.context;
  const auto count = static_cast<Index>(windows.size());
  const Index columns = count * context;
  const ConstMap embedding = View(parameters, T::kEmbedding);
  const ConstMap positions = View(parameters, T::kPositions);
  auto stream = stream_.leftCols(columns);
  for (Index c = 0; c < columns; ++c) {
    const size_t begin = windows[static_cast<size_t>(c / context)] - static_cast<size_t>(context);
    const uint8_t byte = text[begin + static_cast<size_t>(c % context)];
    stream.col(c) = embedding.col(byte) + positions.col(c % context);
  }
  for (int b = 0; b < shape_.blocks; ++b) {
    Block& block = blocks_[static_cast<size_t>(b)];
    const auto weights = [&](int tensor) { return View(parameters, OfBlock(b, tensor)); };
    Normalize(stream, weights(T::kGain1), &block.norm1);
    block.qkv.leftCols(columns).noalias() = weights(T::kQkv) * block.norm1.output.leftCols(columns);
    Attend(count, &block);
    stream.noalias() += weights(T::kProjection) * block.attended.leftCols(columns);
    Normalize(stream, weights(T::kGain2), &block.norm2);
    block.wide.leftCols(columns).noalias() =
        weights(T::kWiden) * block.norm2.output.leftCols(columns);
    Gelu(columns, &block);
    stream.noalias() += weights(T::kNarrow) * block.activated.leftCols(columns);
  }
  Normalize(stream, View(parameters, OfOutput(T::kGain)), &last_norm_);
  auto logits = logits_.leftCols(columns);
  logits.noalias() = View(parameters, OfOutput(T::kHead)) * last_norm_.output.leftCols(columns);

  double loss = 0;
  for (Index c = 0; c < columns; ++c) {
    auto column = logits.col(c).array();
    const size_t begin = windows[static_cast<size_t>(c / context)] - static_cast<size_t>(context);
    const Scalar target = logits(text[begin + static_cast<size_t>(c % context) + 1], c);
    const Scalar maximum = column.maxCoeff();
    column = (column - maximum).exp();
    const Scalar sum = column.sum();
    loss += static_cast<double>(maximum - target) + std::log(static_cast<double>(sum));
    column *= Scalar(1) / sum;
  }
  return loss;
}

template <typename Scalar>
void Transformer<Scalar>::Backward(std::span<const Scalar> parameters,
                                   std::span<const uint8_t> text, std::span<const size_t> windows,
                                   Scalar predictions, std::span<Scalar> gradient,
                                   const OnLayer& on_layer) {
  using T = TransformerTensor;
  const Index context = shape_.context;
  const auto count = static_cast<Index>(windows.size());
  const Index columns = count * context;
  const auto done = [&](int layer) {
    if (on_layer) on_layer(static_cast<size_t>(layer));
  };
  const auto byte_of = [&](Index c, size_t ahead) {
    const size_t begin = windows[static_cast<size_t>(c / context)] - static_cast<size_t>(context);
    return text[begin + static_cast<size_t>(c % context) + ahead];
  };

  // d loss / d logits = (probabilities - one-hot target) / predictions
  auto logits = logits_.leftCols(columns);
  for (Index c = 0; c < columns; ++c) logits(byte_of(c, 1), c) -= Scalar(1);
  logits *= Scalar(1) / predictions;

  auto stream = stream_.leftCols(columns);  // from here on its gradient
  auto narrow = gradient_.leftCols(columns);
  auto wide = wide_gradient_.leftCols(columns);
  auto qkv = qkv_gradient_.leftCols(columns);
  stream.setZero();
  View(gradient, OfOutput(T::kHead)).noalias() +=
      logits * last_norm_.output.leftCols(columns).transpose();
  narrow.noalias() = View(parameters, OfOutput(T::kHead)).transpose() * logits;
  NormalizeBack(last_norm_, View(parameters, OfOutput(T::kGain)), narrow, stream,
                View(gradient, OfOutput(T::kGain)));
  done(shape_.blocks + 1);

  for (int b = shape_.blocks - 1; b >= 0; --b) {
    const Block& block = blocks_[static_cast<size_t>(b)];
    const auto weights = [&](int tensor) { return View(parameters, OfBlock(b, tensor)); };
    const auto sums = [&](int tensor) { return View(gradient, OfBlock(b, tensor)); };
    sums(T::kNarrow).noalias() += stream * block.activated.leftCols(columns).transpose();
    wide.noalias() = weights(T::kNarrow).transpose() * stream;
    wide.array() *= block.slope.leftCols(columns).array();
    sums(T::kWiden).noalias() += wide * block.norm2.output.leftCols(columns).transpose();
    narrow.noalias() = weights(T::kWiden).transpose() * wide;
    NormalizeBack(block.norm2, weights(T::kGain2), narrow, stream, sums(T::kGain2));

    sums(T::kProjection).noalias() += stream * block.attended.leftCols(columns).transpose();
    narrow.noalias() = weights(T::kProjection).transpose() * stream;
    AttendBack(count, block, narrow, qkv);
    sums(T::kQkv).noalias() += qkv * block.norm1.output.leftCols(columns).transpose();
    narrow.noalias() = weights(T::kQkv).transpose() * qkv;
    NormalizeBack(block.norm1, weights(T::kGain1), narrow, stream, sums(T::kGain1));
    done(b + 1);
  }

  MutableMap embedding = View(gradient, T::kEmbedding);
  MutableMap positions = View(gradient, T::kPositions);
  for (Index c = 0; c < columns; ++c) {
    embedding.col(byte_of(c, 0)) += stream.col(c);
    positions.col(c % context) += stream.col(c);
  }
  done(0);
}

}  // namespace onebit::train
