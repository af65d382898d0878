// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/onebit_schedule/volume.h"

namespace onebit::schedule {

void StepCounts::Add(const onebitStepPlan_t& plan) {
  ++steps_;
  ++by_kind_[kKinds.find(plan.kind)];
  dense_ += plan.dense != 0;
  compressed_ += plan.compressed != 0;
  rounds_ += plan.dense != 0 || plan.compressed != 0;
}

uint64_t TotalBits(const StepCounts& counts, int dense_bits) {
  return counts.dense() * static_cast<uint64_t>(dense_bits) + counts.compressed();
}

double BitsPerStep(const StepCounts& counts, int dense_bits) {
  return static_cast<double>(TotalBits(counts, dense_bits)) / static_cast<double>(counts.steps());
}

double Reduction(double bits_per_step, int dense_bits) { return dense_bits / bits_per_step; }

double RoundsSaved(const StepCounts& counts) {
  return 1 - static_cast<double>(counts.rounds()) / static_cast<double>(counts.steps());
}

}  // namespace onebit::schedule
