// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/preload/trainer_model.h"

#include <algorithm>
#include <cmath>

namespace onebit::testing {
namespace {

constexpr size_t kTeacherHidden = 24;
constexpr float kNoise = 0.3f;
constexpr float kMomentum = 0.9f;
constexpr uint64_t kTeacherSeed = 77;

void AddScaled(const float* from, float scale, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] += scale * from[i];
}

// Sums in lanes, which compilers make vectors of.
float Dot(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < count; ++i) sum += a[i] * b[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// rows x columns numbers that keep the scale of what they are multiplied with.
std::vector<float> RandomMatrix(size_t rows, size_t columns, Numbers* numbers) {
  std::vector<float> matrix(rows * columns);
  const float scale = 1 / std::sqrt(static_cast<float>(rows));
  for (float& value : matrix) value = scale * numbers->Normal();
  return matrix;
}

// to[sample] += from[sample] * matrix. A row of the matrix is used for all samples at once.
void Multiply(const std::vector<float>& from, const std::vector<float>& matrix, size_t samples,
              std::vector<float>* to) {
  const size_t rows = from.size() / samples;
  const size_t columns = to->size() / samples;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t sample = 0; sample < samples; ++sample) {
      AddScaled(&matrix[row * columns], from[sample * rows + row], columns,
                &(*to)[sample * columns]);
    }
  }
}

// The gradient of a matrix: the sum over samples of (what it was multiplied with) x (gradient).
void AddProducts(const std::vector<float>& from, const std::vector<float>& gradient, size_t samples,
                 std::vector<float>* matrix) {
  const size_t rows = from.size() / samples;
  const size_t columns = gradient.size() / samples;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t sample = 0; sample < samples; ++sample) {
      AddScaled(&gradient[sample * columns], from[sample * rows + row], columns,
                &(*matrix)[row * columns]);
    }
  }
}

}  // namespace

uint64_t Numbers::Next() {  // splitmix64
  uint64_t value = state_ += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

float Numbers::Normal() {
  // Four uniform numbers of 16 bits; the variance of each is 2^32 / 12.
  const uint64_t bits = Next();
  int64_t sum = -2 * 0xffff;
  for (int part = 0; part < 4; ++part) sum += static_cast<int64_t>(bits >> 16 * part & 0xffff);
  return static_cast<float>(sum) * (1.7320508f / 65536.0f);
}

Batch::Batch(const Sizes& sizes, size_t sample_count, uint64_t seed)
    : samples(sample_count), inputs(samples * sizes.inputs), outputs(samples * sizes.outputs) {
  Numbers teacher(kTeacherSeed);
  static const std::vector<float> first = RandomMatrix(sizes.inputs, kTeacherHidden, &teacher);
  static const std::vector<float> second = RandomMatrix(kTeacherHidden, sizes.outputs, &teacher);
  Numbers numbers(seed);
  for (float& input : inputs) input = numbers.Normal();
  for (float& output : outputs) output = kNoise * numbers.Normal();
  std::vector<float> hidden(samples * kTeacherHidden);
  Multiply(inputs, first, samples, &hidden);
  for (float& value : hidden) value = std::tanh(2 * value);
  Multiply(hidden, second, samples, &outputs);
}

Parameters::Parameters(const Sizes& sizes)
    : first(sizes.inputs * sizes.hidden),
      second(sizes.hidden * sizes.outputs),
      biases(sizes.hidden + sizes.outputs) {}

std::vector<float>& Parameters::tensor(size_t index) {
  return index == 0 ? first : index == 1 ? second : biases;
}

Model::Model(const Sizes& sizes, uint64_t seed)
    : sizes_(sizes), values_(sizes), gradient_(sizes), momentum_(sizes) {
  Numbers numbers(seed);
  values_.first = RandomMatrix(sizes.inputs, sizes.hidden, &numbers);
  values_.second = RandomMatrix(sizes.hidden, sizes.outputs, &numbers);
}

const std::vector<float>& Model::Forward(const Batch& batch) {
  hidden_.resize(batch.samples * sizes_.hidden);
  outputs_.resize(batch.samples * sizes_.outputs);
  const auto bias = values_.biases.begin();
  const auto output_bias = bias + static_cast<ptrdiff_t>(sizes_.hidden);
  for (size_t sample = 0; sample < batch.samples; ++sample) {
    std::copy(bias, output_bias, &hidden_[sample * sizes_.hidden]);
    std::copy(output_bias, values_.biases.end(), &outputs_[sample * sizes_.outputs]);
  }
  Multiply(batch.inputs, values_.first, batch.samples, &hidden_);
  for (float& value : hidden_) value = std::tanh(value);
  Multiply(hidden_, values_.second, batch.samples, &outputs_);
  return outputs_;
}

double Model::Loss(const std::vector<float>& outputs, const Batch& batch) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double error = double{outputs[i]} - batch.outputs[i];
    sum += error * error;
  }
  return sum / 2 / static_cast<double>(outputs.size());
}

Parameters& Model::Backward(const Batch& batch, const std::vector<float>& outputs) {
  for (size_t i = 0; i < Parameters::kTensors; ++i) {
    std::fill(gradient_.tensor(i).begin(), gradient_.tensor(i).end(), 0.0f);
  }
  // Per output and not over all outputs, so that rates do not depend on their number.
  const float scale = 1 / static_cast<float>(batch.samples);
  std::vector<float> errors(outputs.size());
  for (size_t i = 0; i < errors.size(); ++i) errors[i] = scale * (outputs[i] - batch.outputs[i]);
  std::vector<float> hidden_errors(hidden_.size());
  for (size_t unit = 0; unit < sizes_.hidden; ++unit) {
    for (size_t sample = 0; sample < batch.samples; ++sample) {
      const size_t at = sample * sizes_.hidden + unit;
      hidden_errors[at] =
          (1 - hidden_[at] * hidden_[at]) * Dot(&values_.second[unit * sizes_.outputs],
                                                &errors[sample * sizes_.outputs], sizes_.outputs);
    }
  }
  AddProducts(batch.inputs, hidden_errors, batch.samples, &gradient_.first);
  AddProducts(hidden_, errors, batch.samples, &gradient_.second);
  for (size_t sample = 0; sample < batch.samples; ++sample) {
    AddScaled(&hidden_errors[sample * sizes_.hidden], 1, sizes_.hidden, gradient_.biases.data());
    AddScaled(&errors[sample * sizes_.outputs], 1, sizes_.outputs,
              &gradient_.biases[sizes_.hidden]);
  }
  return gradient_;
}

void Model::Step(Parameters* gradient, float rate) {
  for (size_t index = 0; index < Parameters::kTensors; ++index) {
    std::vector<float>& values = values_.tensor(index);
    std::vector<float>& momentum = momentum_.tensor(index);
    const std::vector<float>& slope = gradient->tensor(index);
    for (size_t i = 0; i < values.size(); ++i) {
      momentum[i] = kMomentum * momentum[i] + slope[i];
      values[i] -= rate * momentum[i];
    }
  }
}

}  // namespace onebit::testing
