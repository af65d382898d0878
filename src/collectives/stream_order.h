// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Orders the steps of a plan for a single stream: phases of computing, and between them exchanges
// that post all of their messages together.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan.h"

namespace onebit {

// compute[0], exchange 1, compute[1], exchange 2, compute[2]. Its memory is reused from plan to
// plan.
struct StreamOrder {
  static constexpr uint32_t kExchanges = 2;

  std::vector<uint32_t> compute[kExchanges + 1];  // steps, each after those it depends on
  std::vector<uint32_t> sends[kExchanges];
  std::vector<uint32_t> receives[kExchanges];
  // Working memory, by step.
  std::vector<uint32_t> waiting_for;
  std::vector<uint32_t> phase;
  std::vector<uint32_t> ready;

  // Allocates for plans up to this size, so that Arrange does not.
  void Reserve(const Plan& plan);
  void Arrange(const Plan& plan);
};

}  // namespace onebit
