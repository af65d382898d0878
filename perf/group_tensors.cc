// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/group_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "perf/common/device_calls.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

Tensors::Tensors(const TensorShapes& shapes, onebitComm_t comm, bool has_cuda)
    : comm_(comm), compression_(shapes.compression) {
  if (has_cuda) stream_.emplace();
  std::mt19937 random(static_cast<uint32_t>(shapes.seed));
  std::uniform_real_distribution<double> exponent(std::log2(shapes.least_elements + 1.0),
                                                  std::log2(shapes.most_elements + 1.0));
  for (int i = 0; i < shapes.tensors; ++i) {
    tensors_.push_back(MakeTensor(static_cast<size_t>(std::exp2(exponent(random)) - 0.5)));
    elements_ += tensors_.back().count;
  }
  std::mt19937 values(static_cast<uint32_t>(1000 + RankOf(comm)));
  std::normal_distribution<float> normal;
  for (Tensor& tensor : tensors_) {
    for (float& value : tensor.input) value = normal(values);
    if (!stream_) continue;
    stream_->Copy(tensor.device_input.data(), tensor.input.data(), tensor.count * sizeof(float));
  }
  if (stream_) stream_->Synchronize();
}

Tensors::Tensor Tensors::MakeTensor(size_t count) const {
  Tensor tensor;
  tensor.count = count;
  tensor.input.resize(count);
  tensor.output.resize(count);
  if (stream_) {
    const size_t bytes = std::max<size_t>(count, 1) * sizeof(float);
    tensor.device_input = CudaBuffer(bytes);
    tensor.device_output = CudaBuffer(bytes);
  }
  if (!compression_.is_compressed()) return tensor;
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  compression_.Configure(&config);
  if (stream_) config.memory = onebitMemoryDevice;
  onebitCompressor_t compressor = nullptr;
  Check(onebitCompressorCreate(&compressor, comm_, count, onebitFloat32, &config),
        "onebitCompressorCreate");
  tensor.compressor.reset(compressor);
  return tensor;
}

void Tensors::Enqueue() {
  for (Tensor& tensor : tensors_) {
    const void* const input = stream_ ? static_cast<const void*>(tensor.device_input.data())
                                      : static_cast<const void*>(tensor.input.data());
    void* const output = stream_ ? static_cast<void*>(tensor.device_output.data())
                                 : static_cast<void*>(tensor.output.data());
    Check(onebitAllReduce(input, output, tensor.count, onebitFloat32, onebitAvg,
                          tensor.compressor.get(), comm_, stream_ ? stream_->get() : nullptr),
          "onebitAllReduce");
  }
}

void Tensors::Await() const {
  if (stream_) AwaitCalls(comm_, *stream_);
}

void Tensors::CallAll() {
  Enqueue();
  Await();
}

void Tensors::CallGroup() {
  Check(onebitGroupStart(), "onebitGroupStart");
  Enqueue();
  Check(onebitGroupEnd(), "onebitGroupEnd");
  Await();
}

std::vector<float> Tensors::ResultOf(const Tensor& tensor) const {
  if (!stream_) return tensor.output;
  std::vector<float> result(tensor.count);
  stream_->Copy(result.data(), tensor.device_output.data(), tensor.count * sizeof(float));
  stream_->Synchronize();
  return result;
}

bool Tensors::HasResultsOf(const Tensors& other) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::vector<float> mine = ResultOf(tensors_[i]);
    const std::vector<float> others = other.ResultOf(other.tensors_[i]);
    if (std::memcmp(mine.data(), others.data(), mine.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace onebit::perf
