// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/model.h"

#include "perf/train_text/byte_model.h"
#include "perf/train_text/transformer.h"

namespace onebit::train {

ModelShape DefaultShape(ModelKind kind) {
  if (kind == ModelKind::kMlp) return {};
  return {.kind = kind, .context = 32, .embedding = 96};
}

ModelLayout::ModelLayout(const std::vector<std::vector<Tensor>>& layers) {
  size_t offset = 0;
  for (const std::vector<Tensor>& layer : layers) {
    first_of_layer_.push_back(tensors_.size());
    for (const Tensor& tensor : layer) {
      tensors_.push_back(tensor);
      tensors_.back().offset = offset;
      offset += tensor.count();
    }
  }
  first_of_layer_.push_back(tensors_.size());
}

ModelLayout LayoutOf(const ModelShape& shape) {
  return shape.kind == ModelKind::kMlp ? ByteModelLayout(shape) : TransformerLayout(shape);
}

int PredictionsOf(const ModelShape& shape) {
  return shape.kind == ModelKind::kMlp ? 1 : shape.context;
}

template <typename Scalar>
std::unique_ptr<Model<Scalar>> MakeModel(const ModelShape& shape, int capacity) {
  if (shape.kind == ModelKind::kMlp) return std::make_unique<ByteModel<Scalar>>(shape, capacity);
  return std::make_unique<Transformer<Scalar>>(shape);
}

template std::unique_ptr<Model<float>> MakeModel(const ModelShape& shape, int capacity);
template std::unique_ptr<Model<double>> MakeModel(const ModelShape& shape, int capacity);

}  // namespace onebit::train
