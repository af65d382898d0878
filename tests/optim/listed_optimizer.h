// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a training whose parameters and gradients are in one buffer, or in one for each
// segment.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/optim/optimizer_job.h"

namespace onebit::testing {

enum class Layout { kOneBuffer, kList };

// A training on five segments, all of different settings: one dense, one empty, one with a mask.
struct ListCase {
  OptimizerSubject subject;
  onebitDataType_t gradient_type = onebitFloat32;
  double max_grad_norm = 0;
  onebitClipNorm_t clip_norm = onebitClipMeanSquare;
  std::vector<uint64_t> nan_calls;  // calls in which the last rank's gradient has a NaN
};
inline std::ostream& operator<<(std::ostream& out, const ListCase& one) {
  return out << one.subject.name << ", type " << one.gradient_type << ", limit "
             << one.max_grad_norm << ", norm " << one.clip_norm << ", " << one.nan_calls.size()
             << " NaN";
}

class ListedOptimizer {
 public:
  ListedOptimizer(const ListCase& one, onebitComm_t comm, int rank, int ranks, Layout layout)
      : case_(one), rank_(rank), ranks_(ranks), layout_(layout) {
    const std::vector<float> start = problem_.StartPoint();
    for (const size_t count : Chunks()) {
      const auto begin = start.begin() + static_cast<ptrdiff_t>(ElementsOf(x_));
      x_.emplace_back(begin, begin + static_cast<ptrdiff_t>(count));
      copies_.emplace_back(count);
    }
    onebitOptimizerConfig_t config = one.subject.config;
    const std::vector<uint8_t> mask(32, 0xb7);
    std::vector<onebitSegment_t> segments;
    size_t offset = 0;
    for (const size_t count : kCounts) {
      onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
      segment.offset = offset;
      segment.count = count;
      if (layout == Layout::kList) {
        segment.parameters = x_[segments.size()].data();
        segment.parameterCopy = copies_[segments.size()].data();
      }
      segments.push_back(segment);
      offset += count;
    }
    segments[1].flags = onebitSegmentDense;
    segments[3].mask = mask.data();
    segments[3].lrScale = 0.5;
    segments[4].weightDecay = 0;
    if (config.algorithm == onebitAlgorithmOneBitLamb) {
      segments[4].flags = onebitSegmentNoTrustRatio;
    }
    config.segments = segments.data();
    config.segmentCount = segments.size();
    if (layout == Layout::kOneBuffer) config.parameterCopy = copies_[0].data();
    config.parameterCopyType = onebitBfloat16;
    config.clipNorm = one.clip_norm;
    onebitOptimizer_t optimizer = nullptr;
    Check(onebitOptimizerCreate(&optimizer, comm, problem_.dimension,
                                layout == Layout::kList ? nullptr : x_[0].data(), &config));
    optimizer_.reset(optimizer);
  }
  ListedOptimizer(const ListedOptimizer&) = delete;
  ListedOptimizer& operator=(const ListedOptimizer&) = delete;

  onebitOptimizer_t get() const { return optimizer_.get(); }
  std::vector<float> x() const { return Joined(x_); }
  std::vector<uint16_t> copy() const { return Joined(copies_); }
  size_t count() const { return problem_.dimension; }

  // Makes call 1, 2, ...; a list hands over its gradients in an order that differs between ranks.
  onebitResult_t TryStep(uint64_t call, onebitStepResult_t* result) {
    std::vector<float> gradient = problem_.Gradient(x(), rank_, call);
    for (size_t i = 3; i < gradient.size(); i += 17) gradient[i] = 0;  // no variance, ever
    const bool has_nan = std::ranges::find(case_.nan_calls, call) != case_.nan_calls.end();
    if (rank_ == ranks_ - 1 && has_nan) {
      gradient[gradient.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<std::vector<std::byte>> gradients;
    auto begin = gradient.begin();
    for (const size_t count : Chunks()) {
      gradients.push_back(
          Encode({begin, begin + static_cast<ptrdiff_t>(count)}, case_.gradient_type, 1));
      begin += static_cast<ptrdiff_t>(count);
    }
    void* buffer = nullptr;
    if (layout_ == Layout::kOneBuffer) buffer = gradients[0].data();
    for (size_t i = 0; layout_ == Layout::kList && i < gradients.size(); ++i) {
      const size_t segment = rank_ % 2 == 0 ? i : gradients.size() - 1 - i;
      Check(onebitOptimizerAddGradient(get(), segment, gradients[segment].data(),
                                       case_.gradient_type));
    }
    return onebitOptimizerStep(get(), buffer, case_.gradient_type,
                               0.05 / (1 + 0.2 * static_cast<double>(call)), 0.75,
                               case_.max_grad_norm, result, nullptr);
  }
  // Throws unless the step succeeds.
  onebitStepResult_t Step(uint64_t call) {
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    Check(TryStep(call, &result));
    return result;
  }

  // Overwrites the parameters.
  void Spoil() {
    for (std::vector<float>& part : x_) std::ranges::fill(part, -7.0f);
  }

  Blob Export(onebitStateKind_t kind = onebitStateRank) const { return StateOf(get(), kind); }
  void Import(const Blob& blob) const {
    Check(onebitOptimizerImport(get(), blob.data(), blob.size()));
  }

 private:
  static inline const std::vector<size_t> kCounts = {70, 33, 0, 201, 5};

  // Elements of each buffer.
  std::vector<size_t> Chunks() const {
    return layout_ == Layout::kList ? kCounts : std::vector<size_t>{problem_.dimension};
  }
  template <typename T>
  static size_t ElementsOf(const std::vector<std::vector<T>>& parts) {
    size_t count = 0;
    for (const auto& part : parts) count += part.size();
    return count;
  }
  template <typename T>
  static std::vector<T> Joined(const std::vector<std::vector<T>>& parts) {
    std::vector<T> joined;
    for (const auto& part : parts) joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }

  const ListCase case_;
  const ToyProblem problem_{.dimension = 309, .noise_offset = 5};
  const int rank_, ranks_;
  const Layout layout_;
  std::vector<std::vector<float>> x_;
  std::vector<std::vector<uint16_t>> copies_;
  UniqueOptimizer optimizer_;
};

}  // namespace onebit::testing
