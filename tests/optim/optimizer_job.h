// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers of every algorithm, one step at a time, that can be saved and loaded.
#pragma once

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "tests/optim/training.h"
#include "tests/support/comm_group.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {

using Blob = std::vector<std::byte>;

// The configuration of an optimizer and its segments.
struct OptimizerSubject {
  std::string name;
  onebitOptimizerConfig_t config = DefaultOptimizer();  // without segments
  std::vector<size_t> counts = {9, 0, 16};              // of segments, of which the last is dense

  size_t count() const {
    size_t sum = 0;
    for (const size_t count : counts) sum += count;
    return sum;
  }
};
inline std::ostream& operator<<(std::ostream& out, const OptimizerSubject& subject) {
  return out << subject.name;
}

// Makes compressed, local and dense steps within about ten steps.
inline OptimizerSubject SubjectOf(const std::string& name, onebitAlgorithm_t algorithm,
                                  onebitVariant_t variant = onebitVariantPaper) {
  OptimizerSubject subject{.name = name};
  onebitOptimizerConfig_t& config = subject.config;
  config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.algorithm = algorithm;
  config.variant = variant;
  config.beta2 = 0.9;
  config.weightDecay = 0.01;
  config.varianceFloor = 0.5;                                   // large enough to matter
  if (variant == onebitVariantPaper) config.lrWarmupSteps = 1;  // keeps the log quiet
  if (algorithm == onebitAlgorithmZeroOneAdam) {
    config.varFreezeStep = 5;
    config.varUpdateScaler = 1;
    config.localStepScaler = 2;
    config.localStepClipper = 3;
  } else {
    config.freezeStep = 4;
  }
  return subject;
}

inline std::vector<OptimizerSubject> AllOptimizers() {
  std::vector<OptimizerSubject> all = {
      SubjectOf("adam", onebitAlgorithmOneBitAdam),
      SubjectOf("adam_deepspeed", onebitAlgorithmOneBitAdam, onebitVariantDeepSpeed),
      SubjectOf("lamb", onebitAlgorithmOneBitLamb),
      SubjectOf("lamb_deepspeed", onebitAlgorithmOneBitLamb, onebitVariantDeepSpeed),
      SubjectOf("zero_one", onebitAlgorithmZeroOneAdam),
      SubjectOf("zero_one_deepspeed", onebitAlgorithmZeroOneAdam, onebitVariantDeepSpeed)};
  all[0].config.biasCorrection = 1;
  OptimizerSubject automatic = SubjectOf("adam_automatic", onebitAlgorithmOneBitAdam);
  automatic.config.freezeStep = ONEBIT_FREEZE_AUTOMATIC;
  automatic.config.beta2 = 0.75;  // compares with 4 steps before
  all.push_back(automatic);
  OptimizerSubject never = SubjectOf("lamb_never", onebitAlgorithmOneBitLamb);
  never.config.freezeStep = ONEBIT_FREEZE_NEVER;
  all.push_back(never);
  OptimizerSubject tied = SubjectOf("zero_one_rate_tied", onebitAlgorithmZeroOneAdam);
  tied.config.localStepScaler = ONEBIT_UNDEF_STEP;
  tied.config.rateTied = 1;
  tied.config.denseStepFeedsMomentum = 1;
  all.push_back(tied);
  OptimizerSubject empty = SubjectOf("zero_one_empty", onebitAlgorithmZeroOneAdam);
  empty.counts = {0};
  all.push_back(empty);
  OptimizerSubject nothing = SubjectOf("adam_empty", onebitAlgorithmOneBitAdam);
  nothing.counts = {};
  all.push_back(nothing);
  return all;
}

// One rank of a training.
class OptimizerRank {
 public:
  OptimizerRank(const OptimizerSubject& subject, onebitComm_t comm, int rank)
      : problem_{.dimension = subject.count(), .noise_offset = 5},
        rank_(rank),
        x_(problem_.StartPoint()),
        copy_(x_.size()) {
    onebitOptimizerConfig_t config = subject.config;
    std::vector<onebitSegment_t> segments;
    size_t offset = 0;
    for (const size_t count : subject.counts) {
      onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
      segment.offset = offset;
      segment.count = count;
      segment.flags = segments.size() == 2 ? onebitSegmentDense : 0;
      segments.push_back(segment);
      offset += count;
    }
    config.segments = segments.data();
    config.segmentCount = segments.size();
    config.parameterCopy = copy_.data();
    config.parameterCopyType = onebitBfloat16;
    optimizer_ = MakeOptimizer(comm, x_, config);
  }
  OptimizerRank(const OptimizerRank&) = delete;
  OptimizerRank& operator=(const OptimizerRank&) = delete;

  onebitOptimizer_t get() const { return optimizer_.get(); }
  const OptimizerHandle& handle() const { return optimizer_; }
  std::vector<float>& x() { return x_; }
  const std::vector<uint16_t>& copy() const { return copy_; }
  const ToyProblem& problem() const { return problem_; }

  onebitResult_t TryStep(uint64_t call, double learning_rate, onebitStepResult_t* result) {
    std::vector<float> gradient = problem_.Gradient(x_, rank_, call);
    return onebitOptimizerStep(get(), gradient.data(), onebitFloat32, learning_rate, 1, 0, result,
                               nullptr);
  }
  // Makes call 1, 2, ...; throws unless it succeeds.
  onebitStepResult_t Step(uint64_t call) {
    onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
    Check(TryStep(call, 0.05 / (1 + 0.2 * static_cast<double>(call)), &result));
    return result;
  }
  void StepUntil(uint64_t first_call, uint64_t last_call) {
    for (uint64_t call = first_call; call <= last_call; ++call) Step(call);
  }

  Blob Export(onebitStateKind_t kind = onebitStateRank) const { return StateOf(get(), kind); }
  onebitResult_t TryImport(const Blob& blob) const {
    return onebitOptimizerImport(get(), blob.data(), blob.size());
  }
  void Import(const Blob& blob) const { Check(TryImport(blob)); }
  // Overwrites the parameters, which loading a state must restore.
  void Spoil() { x_.assign(x_.size(), std::numeric_limits<float>::quiet_NaN()); }

 private:
  const ToyProblem problem_;
  const int rank_;
  std::vector<float> x_;
  std::vector<uint16_t> copy_;
  OptimizerHandle optimizer_;
};

}  // namespace onebit::testing
