// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tells tensors apart by the order of calls. NCCL has no name for a tensor, and trainers reuse
// addresses, but they average the same tensors in the same order in every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/nccl_preload/call_facts.h"

namespace onebit::preload {

// Finds the period of the calls on one communicator. Its answers depend on the sequence of calls
// alone, so all ranks get the same ones.
//
// A cycle is believed once it was seen twice. Layers of equal size make shorter repetitions within
// a step. Therefore, after a call that breaks a cycle, the next one must either reach back over
// that call, or last for twice as many calls as the one before had to. Where all calls of a step
// are equal, nothing tells its tensors apart, and they count as one.
class CallCycle {
 public:
  // Number of the call in the cycle, below period(); calls with equal numbers are of one tensor
  // while generation() stays. Nothing before a cycle is found.
  std::optional<uint32_t> Next(const CallFacts& call);

  // Rises with each call that breaks a cycle: numbers before and after it belong to different
  // tensors.
  uint64_t generation() const { return generation_; }
  size_t period() const { return cycle_.size(); }

 private:
  // Longer cycles than half of it are not found.
  static constexpr size_t kMostHistory = 8192;
  static constexpr size_t kFirstRepeats = 4;
  static constexpr size_t kMostRepeats = 2048;

  bool Repeats(size_t period) const;
  size_t FindPeriod() const;  // 0: none
  void Remember(const CallFacts& call);

  std::vector<CallFacts> history_;
  std::vector<CallFacts> cycle_;
  size_t position_ = 0;     // of the next call in cycle_
  size_t since_break_ = 0;  // calls since the last one that broke a cycle, that one included
  size_t required_repeats_ = kFirstRepeats;
  uint64_t generation_ = 0;
};

}  // namespace onebit::preload
