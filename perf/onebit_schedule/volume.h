// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computes how much the steps of a run send. All figures are per element of the model and per rank;
// the factor 2(n-1)/n of an allreduce over n ranks is left out, as it cancels in every ratio.
//
// F is the bits of a dense element, T the number of steps.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "onebit/schedule.h"

namespace onebit::schedule {

// Kinds of steps, in the order in which they are reported.
inline constexpr std::string_view kKinds = "iFB1u.";

class StepCounts {
 public:
  void Add(const onebitStepPlan_t& plan);

  uint64_t steps() const { return steps_; }            // T
  uint64_t rounds() const { return rounds_; }          // steps that send anything
  uint64_t dense() const { return dense_; }            // N_F, with a full precision average
  uint64_t compressed() const { return compressed_; }  // N_1, with a one-bit average
  uint64_t of(char kind) const { return by_kind_[kKinds.find(kind)]; }

 private:
  std::array<uint64_t, kKinds.size()> by_kind_{};
  uint64_t steps_ = 0;
  uint64_t rounds_ = 0;
  uint64_t dense_ = 0;
  uint64_t compressed_ = 0;
};

// N_F F + N_1. A step with both averages counts in both.
uint64_t TotalBits(const StepCounts& counts, int dense_bits);

// V, the mean over the steps.
double BitsPerStep(const StepCounts& counts, int dense_bits);

// R = F / V, the reduction against dense steps only.
double Reduction(double bits_per_step, int dense_bits);

// 1 - rounds / T.
double RoundsSaved(const StepCounts& counts);

}  // namespace onebit::schedule
