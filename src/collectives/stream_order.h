// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of a plan in an order in which one stream can do them: phases of computing, and between
// them exchanges in which all messages go at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan.h"

namespace onebit {

// compute[0], exchange 1, compute[1], exchange 2, compute[2]. Keeps its memory from plan to plan.
struct StreamOrder {
  static constexpr uint32_t kExchanges = 2;

  std::vector<uint32_t> compute[kExchanges + 1];  // steps; each behind what it depends on
  std::vector<uint32_t> sends[kExchanges];
  std::vector<uint32_t> receives[kExchanges];
  // Working memory, by step.
  std::vector<uint32_t> waiting_for;
  std::vector<uint32_t> phase;
  std::vector<uint32_t> ready;

  // Makes room for plans as large as this one; then Arrange allocates nothing.
  void Reserve(const Plan& plan);
  void Arrange(const Plan& plan);
};

}  // namespace onebit
