// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The formulas of 1-bit Adam's compressed allreduce (Tang et al. 2021), with whole-tensor scales.
#include "perf/studies/baselines/multi_pass_model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace onebit::perf {
namespace {

// The order of additions is part of the result: element i goes to sum i mod 64, and these 64 are
// added last.
constexpr size_t kLanes = 64;

float RootMeanSquare(const std::vector<float>& values) {
  std::array<float, kLanes> lanes{};
  for (size_t i = 0; i < values.size(); ++i) lanes[i % kLanes] += values[i] * values[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return std::sqrt(sum / static_cast<float>(values.size()));
}

float SignOf(float value) { return value < 0 ? -1.0f : 1.0f; }

// Compresses values + error; the remainder becomes the new error.
struct Compressed {
  float scale = 0;
  std::vector<float> signs;
};

Compressed Compress(std::vector<float> values, std::vector<float>* error) {
  for (size_t i = 0; i < values.size(); ++i) values[i] += (*error)[i];
  Compressed result;
  result.scale = RootMeanSquare(values);
  for (size_t i = 0; i < values.size(); ++i) {
    result.signs.push_back(SignOf(values[i]));
    (*error)[i] = values[i] - result.scale * result.signs[i];
  }
  return result;
}

}  // namespace

MultiPassModel::MultiPassModel(const Case& row)
    : AllReduceReference(row),
      count_(row.count),
      ranks_(static_cast<size_t>(row.ranks)),
      chunk_(((count_ + ranks_ - 1) / ranks_ + kLanes - 1) / kLanes * kLanes),
      worker_errors_(ranks_, std::vector<float>(chunk_ * ranks_)),
      server_errors_(ranks_, std::vector<float>(chunk_)),
      total_in_(count_),
      total_out_(count_) {}

void MultiPassModel::Simulate(std::span<const void* const> inputs, void* result) {
  if (count_ == 0) return;
  auto* output = static_cast<float*>(result);
  std::vector<Compressed> sent;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    std::vector<float> values(chunk_ * ranks_);
    for (size_t i = 0; i < count_; ++i) {
      values[i] = static_cast<const float*>(inputs[rank])[i];
      total_in_[i] += values[i];
    }
    sent.push_back(Compress(std::move(values), &worker_errors_[rank]));
  }
  for (size_t server = 0; server < ranks_; ++server) {
    std::vector<float> mean(chunk_);
    for (size_t i = 0; i < chunk_; ++i) {
      for (const Compressed& packet : sent) {
        mean[i] += packet.scale / static_cast<float>(ranks_) * packet.signs[server * chunk_ + i];
      }
    }
    const Compressed result = Compress(std::move(mean), &server_errors_[server]);
    for (size_t i = 0; i < chunk_ && server * chunk_ + i < count_; ++i) {
      const size_t at = server * chunk_ + i;
      output[at] = result.scale * static_cast<float>(ranks_) * result.signs[i];
      total_out_[at] += output[at];
    }
  }
}

uint64_t MultiPassModel::CountLostElements() {
  constexpr double kTolerance = 1e-5;  // of the largest number that takes part
  uint64_t lost = 0;
  for (size_t i = 0; i < count_; ++i) {
    const double kept_by_server =
        server_errors_[i / chunk_][i % chunk_] * static_cast<double>(ranks_);
    double kept = kept_by_server;
    double largest = std::max({std::abs(total_in_[i]), std::abs(kept_by_server), 1.0});
    for (const std::vector<float>& error : worker_errors_) {
      kept += error[i];
      largest = std::max<double>(largest, std::abs(error[i]));
    }
    if (!(std::abs(total_out_[i] + kept - total_in_[i]) <= kTolerance * largest)) ++lost;
  }
  return lost;
}

}  // namespace onebit::perf
