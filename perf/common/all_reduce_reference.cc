// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Expected results of all_reduce_perf, from the scalar model of a whole allreduce.
#include "perf/common/all_reduce_reference.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "perf/common/allreduce_model.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

namespace reference = kernels::reference;

class DenseReference : public AllReduceReference {
 public:
  using AllReduceReference::AllReduceReference;

 private:
  void Simulate(std::span<const void* const> inputs, void* output) override {
    reference::DenseAllReduce(inputs, row_.count, KernelType(row_.type), KernelOp(row_.op), output);
  }
};

class SignReference : public AllReduceReference {
 public:
  SignReference(const Case& row, const Options& options)
      : AllReduceReference(row), model_(ConfigOf(row, options)) {}

 protected:
  reference::AllReduceModel& model() { return model_; }

 private:
  static reference::AllReduceConfig ConfigOf(const Case& row, const Options& options) {
    reference::AllReduceConfig config;
    config.ranks = static_cast<size_t>(row.ranks);
    config.count = row.count;
    config.type = KernelType(row.type);
    config.is_sum = row.op == onebitSum;
    config.has_feedback = options.mode == Mode::kEf;
    config.rule =
        options.scale_rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
    config.block = static_cast<size_t>(options.block);
    config.threads = std::max(1u, std::thread::hardware_concurrency());
    return config;
  }

  void Simulate(std::span<const void* const> inputs, void* output) override {
    model_.Run(inputs, output);
  }

  reference::AllReduceModel model_;
};

// Error feedback loses nothing: over all calls
//   sum of outputs + mean of the worker residuals + server residual = sum of mean inputs.
//
// The outputs are the library's, the residuals the model's: the C API does not give out those of
// the library. So this shows that the model loses nothing of these inputs, and that the library's
// outputs fit the model's residuals; it fails where outputs differ from the model's by more than
// rounding, which the comparison of bytes finds, too. It cannot show that the library's residuals
// after the last call are right: those of earlier calls show only in the outputs of later ones.
class FeedbackReference : public SignReference {
 public:
  FeedbackReference(const Case& row, const Options& options)
      : SignReference(row, options), mean_inputs_(row.count), outputs_(row.count) {}

  void Observe(std::span<const void* const> inputs, const void* output) override {
    const double share = 1.0 / row_.ranks;
    const double output_share = row_.op == onebitSum ? share : 1.0;
    for (size_t i = 0; i < row_.count; ++i) {
      double sum = 0;
      for (const void* input : inputs) sum += ElementAt(input, row_.type, i);
      mean_inputs_[i] += sum * share;
      outputs_[i] += ElementAt(output, row_.type, i) * output_share;
    }
  }

  uint64_t CountLostElements() override {
    constexpr double kTolerance = 1e-5;  // of the largest number that takes part
    double largest = 0;
    for (double input : mean_inputs_) largest = std::max(largest, std::abs(input));
    const auto add = [&](const std::vector<float>& residual, double share) {
      for (size_t i = 0; i < row_.count; ++i) {
        outputs_[i] += residual[i] * share;
        largest = std::max(largest, std::abs(static_cast<double>(residual[i])));
      }
    };
    for (int rank = 0; rank < row_.ranks; ++rank) {
      add(model().worker_residual(static_cast<size_t>(rank)), 1.0 / row_.ranks);
    }
    add(model().server_residual(), 1.0);

    uint64_t lost = 0;
    for (size_t i = 0; i < row_.count; ++i) {
      // Written so that a NaN counts.
      if (!(std::abs(outputs_[i] - mean_inputs_[i]) <= kTolerance * largest)) ++lost;
    }
    return lost;
  }

 private:
  std::vector<double> mean_inputs_;  // summed over calls
  std::vector<double> outputs_;      // the same, in units of the mean
};

}  // namespace

std::unique_ptr<Reference> MakeAllReduceReference(const Case& row, const Options& options) {
  switch (options.mode) {
    case Mode::kDense:
      return std::make_unique<DenseReference>(row);
    case Mode::kSign:
      return std::make_unique<SignReference>(row, options);
    case Mode::kEf:
      return std::make_unique<FeedbackReference>(row, options);
  }
  return nullptr;
}

}  // namespace onebit::perf
