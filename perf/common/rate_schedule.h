// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Learning rates of a run: a linear warm-up, then one of the usual decays.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace onebit::perf {

enum class Decay { kConstant, kCosine, kLinear, kExponential };

struct RateSchedule {
  double peak = 1;
  uint64_t warmup_steps = 0;
  Decay decay = Decay::kConstant;
  uint64_t total_steps = 0;  // of cosine and linear, which are 0 from there on
  double factor = 1;         // of exponential, once per decay_steps
  uint64_t decay_steps = 1;

  // Steps count from 0. The last of the warm-up has the peak.
  double At(uint64_t step) const {
    if (step < warmup_steps) {
      return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    }
    const uint64_t decays = (step - warmup_steps) / decay_steps;  // of exponential
    switch (decay) {
      case Decay::kConstant:
        return peak;
      case Decay::kCosine:
        return peak * 0.5 * (1 + std::cos(std::numbers::pi * Progress(step)));
      case Decay::kLinear:
        return peak * (1 - Progress(step));
      case Decay::kExponential:
        return peak * std::pow(factor, static_cast<double>(decays));
    }
    return peak;
  }

 private:
  double Progress(uint64_t step) const {
    if (step >= total_steps) return 1;
    return static_cast<double>(step - warmup_steps) /
           static_cast<double>(total_steps - warmup_steps);
  }
};

}  // namespace onebit::perf
