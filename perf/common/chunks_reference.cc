// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computes dense calls directly and compressed ones with the scalar models.
#include "perf/common/chunks_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "perf/common/allreduce_model.h"
#include "perf/common/chunks_model.h"
#include "perf/common/comm_handles.h"
#include "perf/common/low_bit_config.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

// Keeps the expected result of each call on every rank.
class ChunksReference : public Reference {
 public:
  ChunksReference(const Case& row, const Options& options)
      : row_(row), ranks_(static_cast<size_t>(row.ranks)), is_dense_(!options.is_compressed()) {
    SetRanks(row, &config_);
    config_.count = row.count;
    config_.type = KernelType(row.type);
    config_.is_sum = row.op == onebitSum;
    config_.has_feedback = options.mode == Mode::kEf;
    if (options.has_codes()) low_bit_.emplace(LowBitConfigOf(row, options));
    if (options.is_sparse()) sparse_.emplace(SparseConfigOf(row, options));
    config_.rule =
        options.scale_rule == onebitScaleL1 ? kernels::ScaleRule::kL1 : kernels::ScaleRule::kL2;
    config_.block = static_cast<size_t>(options.block);
  }

  void Advance(std::span<const void* const> inputs) override {
    std::vector<Buffer> outputs;
    std::vector<void*> pointers;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      outputs.emplace_back(OutputElements() * ElementBytes(row_.type));
      pointers.push_back(outputs.back().data());
    }
    if (is_dense_ && row_.count != 0) Exact(inputs, pointers);
    if (!is_dense_) Compress(inputs, pointers);
    expected_.push_back(std::move(outputs));
  }
  const void* Expected(size_t call, int rank) const override {
    return expected_[call][static_cast<size_t>(rank)].data();
  }

  void Observe(std::span<const void* const>, const void*) override {}
  uint64_t CountLostElements() override { return 0; }

 protected:
  virtual size_t OutputElements() const { return config_.elements(); }
  virtual void Exact(std::span<const void* const> inputs, std::span<void* const> outputs) = 0;
  virtual void Compress(std::span<const void* const> inputs, std::span<void* const> outputs) = 0;

  size_t chunk_bytes() const { return row_.count * ElementBytes(row_.type); }
  const std::byte* ChunkOf(const void* buffer, size_t chunk) const {
    return static_cast<const std::byte*>(buffer) + chunk * chunk_bytes();
  }
  std::byte* ChunkOf(void* buffer, size_t chunk) const {
    return static_cast<std::byte*>(buffer) + chunk * chunk_bytes();
  }
  // Counts elements whose inputs are neither in outputs nor in residuals. Rounding an output once
  // to its type may lose up to `roundings` half units of it.
  uint64_t CountDifferences(const std::vector<double>& inputs, const std::vector<double>& outputs,
                            double roundings) const {
    double largest = 0;
    for (const double input : inputs) largest = std::max(largest, std::abs(input));
    const double unit = row_.type == onebitFloat32   ? 0
                        : row_.type == onebitFloat16 ? 0x1p-11
                                                     : 0x1p-8;
    const double tolerance = (1e-5 + roundings * unit) * largest;
    uint64_t lost = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!(std::abs(outputs[i] - inputs[i]) <= tolerance)) ++lost;  // a NaN counts
    }
    return lost;
  }

  const Case row_;
  const size_t ranks_;
  const bool is_dense_;
  model::ChunksConfig config_;
  std::optional<model::LowBitModel> low_bit_;  // instead of the model of signs
  std::optional<model::SparseModel> sparse_;   // the same

 private:
  std::vector<std::vector<Buffer>> expected_;  // [call][rank]
};

// Over all calls, the outputs plus the mean of the residuals add up to the mean inputs, for rank
// 0's chunk. With two levels residuals are those of hosts, which count by their ranks. A 16-bit
// output is rounded, and no residual holds the difference.
class ReduceScatterReference : public ChunksReference {
 public:
  ReduceScatterReference(const Case& row, const Options& options)
      : ChunksReference(row, options), model_(config_), inputs_(row.count), outputs_(row.count) {}

  void Observe(std::span<const void* const> inputs, const void* output) override {
    const double share = 1.0 / row_.ranks;
    const double output_share = row_.op == onebitSum ? share : 1.0;
    for (size_t i = 0; i < row_.count; ++i) {
      for (const void* input : inputs) inputs_[i] += ElementAt(input, row_.type, i) * share;
      outputs_[i] += ElementAt(output, row_.type, i) * output_share;
    }
    ++calls_;
  }
  uint64_t CountLostElements() override {
    if (is_dense_ || !config_.has_feedback || ranks_ == 1) return 0;
    for (size_t worker = 0; worker < config_.ranks; ++worker) {
      const std::vector<float> residual =
          low_bit_ ? low_bit_->worker_residual(worker) : model_.residual(worker);
      const double share = static_cast<double>(config_.hosts.RanksOfWorker(worker)) / row_.ranks;
      for (size_t i = 0; i < row_.count; ++i) outputs_[i] += residual[i] * share;
    }
    return CountDifferences(inputs_, outputs_, 2.0 * calls_);
  }

 private:
  size_t OutputElements() const override { return row_.count; }
  void Exact(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    for (size_t chunk = 0; chunk < ranks_; ++chunk) {
      std::vector<const void*> pieces;
      for (const void* input : inputs) pieces.push_back(ChunkOf(input, chunk));
      if (config_.hosts.empty()) {
        model::DenseAllReduce(pieces, row_.count, config_.type, KernelOp(row_.op), outputs[chunk]);
      } else {
        model::DenseAllReduceOnHosts(config_.hosts, pieces, row_.count, config_.type,
                                     KernelOp(row_.op), outputs[chunk]);
      }
    }
  }
  void Compress(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    if (config_.hosts.empty()) return RunModel(inputs, outputs);
    const std::vector<std::vector<float>> means =
        model::MeansOfHosts(config_.hosts, inputs, ranks_ * row_.count, config_.type);
    RunModel(model::PointersTo(means), outputs);
  }
  // `inputs` are those of the ranks, or with two levels the means of hosts in fp32.
  void RunModel(std::span<const void* const> inputs, std::span<void* const> outputs) {
    if (low_bit_) return low_bit_->ReduceScatter(inputs, outputs);
    if (sparse_) return sparse_->ReduceScatter(inputs, outputs);
    model_.Run(inputs, outputs);
  }

  model::ReduceScatterModel model_;
  std::vector<double> inputs_;   // means, summed over calls
  std::vector<double> outputs_;  // the same
  int calls_ = 0;
};

// Over all calls, the outputs plus the residual add up to the inputs, for everything sent to rank
// 0.
class AllToAllReference : public ChunksReference {
 public:
  AllToAllReference(const Case& row, const Options& options)
      : ChunksReference(row, options),
        model_(config_),
        inputs_(config_.elements()),
        outputs_(config_.elements()) {}

  void Observe(std::span<const void* const> inputs, const void* output) override {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      for (size_t i = 0; i < row_.count; ++i) {
        inputs_[rank * row_.count + i] += ElementAt(inputs[rank], row_.type, i);
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i] += ElementAt(output, row_.type, i);
  }
  uint64_t CountLostElements() override {
    if (is_dense_ || !config_.has_feedback || ranks_ == 1) return 0;
    for (size_t rank = 1; rank < ranks_; ++rank) {
      // The first part is that of what goes to rank 0.
      const std::vector<float> all =
          low_bit_ ? low_bit_->worker_residual(rank) : std::vector<float>();
      const std::span<const float> residual = low_bit_ ? all : model_.residual(rank, 0);
      for (size_t i = 0; i < row_.count; ++i) outputs_[rank * row_.count + i] += residual[i];
    }
    return CountDifferences(inputs_, outputs_, 0);
  }

 private:
  void Exact(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    for (size_t from = 0; from < ranks_; ++from) {
      for (size_t to = 0; to < ranks_; ++to) {
        std::memcpy(ChunkOf(outputs[to], from), ChunkOf(inputs[from], to), chunk_bytes());
      }
    }
  }
  void Compress(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    if (low_bit_) return low_bit_->AllToAll(inputs, outputs);
    model_.Run(inputs, outputs);
  }

  model::AllToAllModel model_;
  std::vector<double> inputs_;  // summed over calls
  std::vector<double> outputs_;
};

Case WithoutHosts(Case row) {
  row.hosts = {};
  return row;
}

// Each output is the state that all ranks share after that call, rounded to its type. Levels do not
// change it.
class AllGatherReference : public ChunksReference {
 public:
  AllGatherReference(const Case& row, const Options& options)
      : ChunksReference(WithoutHosts(row), options), model_(config_) {}

  void Observe(std::span<const void* const>, const void* output) override {
    outputs_.resize(config_.elements());
    for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i] = ElementAt(output, row_.type, i);
  }
  uint64_t CountLostElements() override {
    if (is_dense_ || !config_.has_feedback || ranks_ == 1) return 0;
    // The low-bit model has the negated estimates.
    const std::vector<float> held = low_bit_ ? low_bit_->worker_residual(0) : model_.held();
    std::vector<double> expected(held.begin(), held.end());
    if (low_bit_) std::transform(held.begin(), held.end(), expected.begin(), std::negate<>());
    return CountDifferences(expected, outputs_, 1);
  }

 private:
  void Exact(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    for (size_t from = 0; from < ranks_; ++from) {
      for (size_t to = 0; to < ranks_; ++to) {
        std::memcpy(ChunkOf(outputs[to], from), inputs[from], chunk_bytes());
      }
    }
  }
  void Compress(std::span<const void* const> inputs, std::span<void* const> outputs) override {
    if (low_bit_) return low_bit_->AllGather(inputs, outputs);
    if (sparse_) return sparse_->AllGather(inputs, outputs);
    model_.Run(inputs, outputs[0]);
    for (size_t rank = 1; rank < ranks_ && row_.count != 0; ++rank) {
      std::memcpy(outputs[rank], outputs[0], ranks_ * chunk_bytes());
    }
  }

  model::AllGatherModel model_;
  std::vector<double> outputs_;  // of the last call
};

}  // namespace

std::unique_ptr<Reference> MakeReduceScatterReference(const Case& row, const Options& options) {
  return std::make_unique<ReduceScatterReference>(row, options);
}

std::unique_ptr<Reference> MakeAllGatherReference(const Case& row, const Options& options) {
  return std::make_unique<AllGatherReference>(row, options);
}

std::unique_ptr<Reference> MakeAllToAllReference(const Case& row, const Options& options) {
  return std::make_unique<AllToAllReference>(row, options);
}

}  // namespace onebit::perf
