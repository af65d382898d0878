// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Orders the steps of a plan for a single stream: phases of computing, and between them exchanges
// that post all of their messages together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace onebit {

// Phase 0, exchange 1, phase 1, exchange 2, ...: one phase more than the plan has exchanges. Its
// memory is reused from plan to plan.
class StreamOrder {
 public:
  // Allocates for plans up to this size, so that Arrange does not.
  void Reserve(const Plan& plan);
  void Arrange(const Plan& plan);

  uint32_t exchanges() const { return exchanges_; }
  // Computing steps of a phase, each after those it depends on. Phases and exchanges beyond those
  // of the plan, and those before its first one (which wrap around), are empty.
  std::span<const uint32_t> compute(uint32_t phase) const { return At(compute_, phase); }
  // Messages of an exchange, counted from 1.
  std::span<const uint32_t> sends(uint32_t exchange) const { return At(sends_, exchange - 1); }
  std::span<const uint32_t> receives(uint32_t exchange) const {
    return At(receives_, exchange - 1);
  }

 private:
  using Lists = std::vector<std::vector<uint32_t>>;

  void SortMessages(const Plan& plan);
  static std::span<const uint32_t> At(const Lists& lists, uint32_t index) {
    return index < lists.size() ? std::span<const uint32_t>(lists[index])
                                : std::span<const uint32_t>();
  }

  uint32_t exchanges_ = 0;
  Lists compute_;   // by phase
  Lists sends_;     // by exchange - 1
  Lists receives_;  // by exchange - 1
  // Working memory, by step.
  std::vector<uint32_t> waiting_for_;
  std::vector<uint32_t> phase_;
  std::vector<uint32_t> ready_;
};

}  // namespace onebit
