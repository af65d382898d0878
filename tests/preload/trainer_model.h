// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A model for tests of training: two layers with tanh between them, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onebit::testing {

// Numbers that are the same in every run.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15) {}
  float Normal();

 private:
  uint64_t Next();
  uint64_t state_;
};

struct Sizes {
  size_t inputs = 512;
  size_t hidden = 512;
  size_t outputs = 520;
};

// Samples by rows. The outputs are those of a smaller network, with noise.
struct Batch {
  Batch(const Sizes& sizes, size_t samples, uint64_t seed);

  size_t samples;
  std::vector<float> inputs;
  std::vector<float> outputs;
};

// Values of the model's parameters, or their gradients.
struct Parameters {
  explicit Parameters(const Sizes& sizes);

  std::vector<float> first;   // inputs x hidden
  std::vector<float> second;  // hidden x outputs
  std::vector<float> biases;  // of the hidden layer, then of the outputs

  static constexpr size_t kTensors = 3;
  std::vector<float>& tensor(size_t index);
};

class Model {
 public:
  Model(const Sizes& sizes, uint64_t seed);

  Parameters& values() { return values_; }
  // The outputs for a batch.
  const std::vector<float>& Forward(const Batch& batch);
  // Half the mean squared error of `outputs`.
  static double Loss(const std::vector<float>& outputs, const Batch& batch);
  // The gradient of the loss, after Forward for the same batch. `outputs` may be sums over models.
  Parameters& Backward(const Batch& batch, const std::vector<float>& outputs);
  // A step of gradient descent with momentum.
  void Step(Parameters* gradient, float rate);

 private:
  const Sizes sizes_;
  Parameters values_;
  Parameters gradient_;
  Parameters momentum_;
  std::vector<float> hidden_;   // samples x hidden
  std::vector<float> outputs_;  // samples x outputs
};

}  // namespace onebit::testing
