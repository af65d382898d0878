// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Expected results of all_reduce_perf, from the scalar model of a whole allreduce.
#include "perf/common/all_reduce_reference.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "perf/common/allreduce_model.h"
#include "perf/common/low_bit_config.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

class DenseReference : public AllReduceReference {
 public:
  using AllReduceReference::AllReduceReference;

 private:
  void Simulate(std::span<const void* const> inputs, void* output) override {
    const kernels::DataType type = KernelType(row_.type);
    if (row_.hosts.empty()) {
      model::DenseAllReduce(inputs, row_.count, type, KernelOp(row_.op), output);
    } else {
      model::DenseAllReduceOnHosts(model::HostLayout(row_.hosts), inputs, row_.count, type,
                                   KernelOp(row_.op), output);
    }
  }
};

// Error feedback loses nothing: over all calls
//   sum of outputs + mean of the worker residuals + server residual = sum of mean inputs.
// With two levels the residuals of workers are those of hosts, which count by their ranks.
//
// The outputs are the library's, the residuals the model's: the C API does not give out those of
// the library. So this shows that the model loses nothing of these inputs, and that the library's
// outputs fit the model's residuals; it fails where outputs differ from the model's by more than
// rounding, which the comparison of bytes finds, too. It cannot show that the library's residuals
// after the last call are right: those of earlier calls show only in the outputs of later ones.
class CompressedReference : public AllReduceReference {
 public:
  CompressedReference(const Case& row, bool has_feedback)
      : AllReduceReference(row), hosts_(row.hosts), has_feedback_(has_feedback) {
    if (!has_feedback) return;
    mean_inputs_.resize(row.count);
    outputs_.resize(row.count);
  }

  void Observe(std::span<const void* const> inputs, const void* output) override {
    if (!has_feedback_) return;
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
    if (!has_feedback_) return 0;
    constexpr double kTolerance = 1e-5;  // of the largest number that takes part
    double largest = 0;
    for (double input : mean_inputs_) largest = std::max(largest, std::abs(input));
    const auto add = [&](const std::vector<float>& residual, double share) {
      for (size_t i = 0; i < row_.count; ++i) {
        outputs_[i] += residual[i] * share;
        largest = std::max(largest, std::abs(static_cast<double>(residual[i])));
      }
    };
    const size_t workers = hosts_.empty() ? static_cast<size_t>(row_.ranks) : hosts_.hosts();
    for (size_t worker = 0; worker < workers; ++worker) {
      const auto ranks = static_cast<double>(hosts_.RanksOfWorker(worker));
      add(WorkerResidual(worker), ranks / row_.ranks);
    }
    add(ServerResidual(), server_unit());

    uint64_t lost = 0;
    for (size_t i = 0; i < row_.count; ++i) {
      // Written so that a NaN counts.
      if (!(std::abs(outputs_[i] - mean_inputs_[i]) <= kTolerance * largest)) ++lost;
    }
    return lost;
  }

 protected:
  // `inputs` are those of the ranks, or with two levels the means of hosts in fp32.
  virtual void RunModel(std::span<const void* const> inputs, void* output) = 0;
  // The residuals of the model.
  virtual std::vector<float> WorkerResidual(size_t worker) const = 0;
  virtual std::vector<float> ServerResidual() const = 0;
  // True if servers add their residual to the sum itself where the op is one, not to the mean.
  virtual bool adds_to_sum() const = 0;
  bool has_two_levels() const { return !hosts_.empty(); }

 private:
  void Simulate(std::span<const void* const> inputs, void* output) final {
    if (hosts_.empty()) return RunModel(inputs, output);
    const std::vector<std::vector<float>> means =
        model::MeansOfHosts(hosts_, inputs, row_.count, KernelType(row_.type));
    RunModel(model::PointersTo(means), output);
  }

  // The unit of the server residual, in units of the mean result.
  double server_unit() const {
    return row_.op == onebitSum && adds_to_sum() ? 1.0 / row_.ranks : 1;
  }

  const model::HostLayout hosts_;
  const bool has_feedback_;
  std::vector<double> mean_inputs_;  // summed over calls
  std::vector<double> outputs_;      // the same, in units of the mean
};

class SignReference : public CompressedReference {
 public:
  SignReference(const Case& row, const CodecChoice& choice)
      : CompressedReference(row, choice.mode == Mode::kEf), model_(ConfigOf(row, choice)) {}

 private:
  static model::AllReduceConfig ConfigOf(const Case& row, const CodecChoice& choice) {
    model::AllReduceConfig config;
    SetRanks(row, &config);
    config.count = row.count;
    config.type = KernelType(row.type);
    config.is_sum = row.op == onebitSum;
    config.has_feedback = choice.mode == Mode::kEf;
    config.rule =
        choice.scale_rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
    config.block = static_cast<size_t>(choice.block);
    config.threads = std::max(1u, std::thread::hardware_concurrency());
    return config;
  }

  void RunModel(std::span<const void* const> inputs, void* output) override {
    model_.Run(inputs, output);
  }
  std::vector<float> WorkerResidual(size_t worker) const override {
    return model_.worker_residual(worker);
  }
  std::vector<float> ServerResidual() const override { return model_.server_residual(); }
  bool adds_to_sum() const override { return has_two_levels(); }

  model::AllReduceModel model_;
};

// Serves low-bit and sparse codecs.
template <class Model>
class CodesReference : public CompressedReference {
 public:
  template <class Config>
  CodesReference(const Case& row, const Config& config)
      : CompressedReference(row, config.has_feedback), model_(config) {}

 private:
  void RunModel(std::span<const void* const> inputs, void* output) override {
    // Every rank has the same result, so one buffer takes all of them.
    const std::vector<void*> outputs(inputs.size(), output);
    model_.AllReduce(inputs, outputs);
  }
  std::vector<float> WorkerResidual(size_t worker) const override {
    return model_.worker_residual(worker);
  }
  std::vector<float> ServerResidual() const override { return model_.server_residual(); }
  bool adds_to_sum() const override { return true; }

  Model model_;
};

}  // namespace

std::unique_ptr<Reference> MakeAllReduceReference(const Case& row, const Options& options) {
  if (!options.is_compressed()) return std::make_unique<DenseReference>(row);
  if (options.has_codes()) {
    return std::make_unique<CodesReference<model::LowBitModel>>(row, LowBitConfigOf(row, options));
  }
  if (options.is_sparse()) {
    return std::make_unique<CodesReference<model::SparseModel>>(row, SparseConfigOf(row, options));
  }
  return std::make_unique<SignReference>(row, options);
}

}  // namespace onebit::perf
