// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A language model over bytes: what the trainer knows of it.
//
// All parameters live in one flat buffer that the caller owns, tensor after tensor; a gradient has
// the same layout. The scalar type is a template argument so that a test can check the gradient in
// double precision.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace onebit::train {

inline constexpr int kByteValues = 256;

enum class ModelKind {
  kMlp,         // embeddings of the preceding bytes, two hidden layers, softmax: byte_model.h
  kTransformer  // causal self-attention: transformer.h
};

struct ModelShape {
  ModelKind kind = ModelKind::kMlp;
  int context = 16;                        // bytes that predict the next one
  int embedding = 32;                      // numbers per byte of context
  std::array<int, 2> hidden = {768, 512};  // of the MLP
  int blocks = 2;                          // of the transformer, as its heads
  int heads = 4;
};

/** The shape that measured runs have. */
ModelShape DefaultShape(ModelKind kind);

/** One tensor in the flat buffer: `rows` x `cols`, column after column. */
struct Tensor {
  std::string name;
  int rows = 0;
  int cols = 0;
  size_t offset = 0;

  size_t count() const { return static_cast<size_t>(rows) * static_cast<size_t>(cols); }
  /** Biases and gains, of which optimizers keep decay and trust ratios away. */
  bool is_vector() const { return cols == 1; }
};

/** Tensors of a model, in the order of the flat buffer, and the layers that they make up. */
class ModelLayout {
 public:
  /** Lays out `layers`, of which each is at least one tensor. */
  explicit ModelLayout(const std::vector<std::vector<Tensor>>& layers);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  /** Parts whose gradients are complete at the same time. */
  size_t layers() const { return first_of_layer_.size() - 1; }
  std::span<const Tensor> LayerTensors(size_t layer) const {
    return std::span(tensors_).subspan(first_of_layer_[layer],
                                       first_of_layer_[layer + 1] - first_of_layer_[layer]);
  }
  size_t parameter_count() const { return tensors_.back().offset + tensors_.back().count(); }

 private:
  std::vector<Tensor> tensors_;
  std::vector<size_t> first_of_layer_;  // tensors; one more than there are layers
};

/** Has the buffers of the forward and backward pass. Not thread-safe. */
template <typename Scalar>
class Model {
 public:
  using OnLayer = std::function<void(size_t layer)>;

  virtual ~Model() = default;

  virtual const ModelLayout& layout() const = 0;

  /** Bytes that are predicted for a position: the one there, and those right before it. */
  virtual int predictions() const = 0;

  virtual void Initialize(uint64_t seed, std::span<Scalar> parameters) const = 0;

  /**
   * Returns the sum of -ln p over the bytes predicted for all `positions`, each from bytes that go
   * back to `context` before its position. There are at most as many positions as the model was
   * made for, each at least `context` and below the size of `text`.
   */
  virtual double LossSum(std::span<const Scalar> parameters, std::span<const uint8_t> text,
                         std::span<const size_t> positions) = 0;

  /**
   * Returns the mean of the same, over at least one position, and overwrites all of `gradient` with
   * the gradient of that mean. Calls `on_layer`, if there is one, as soon as the gradient of a
   * layer is complete and its parameters are no longer needed; the last layer comes first.
   */
  virtual double MeanLossAndGradient(std::span<const Scalar> parameters,
                                     std::span<const uint8_t> text,
                                     std::span<const size_t> positions, std::span<Scalar> gradient,
                                     const OnLayer& on_layer = {}) = 0;
};

/** Makes a model for up to `capacity` positions at once. Scalar is float or double. */
template <typename Scalar>
std::unique_ptr<Model<Scalar>> MakeModel(const ModelShape& shape, int capacity);

/** The same as the model's, without its buffers. */
ModelLayout LayoutOf(const ModelShape& shape);
int PredictionsOf(const ModelShape& shape);

}  // namespace onebit::train
