// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A model of MultiPassAllReduce that computes one element after the other, for all ranks at once.
// The two share no code and agree to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perf/common/all_reduce_reference.h"

namespace onebit::perf {

class MultiPassModel : public AllReduceReference {
 public:
  explicit MultiPassModel(const Case& row);

  // For every element, the outputs, the worker errors and the server errors times the number of
  // ranks must add up to the inputs.
  uint64_t CountLostElements() override;

 private:
  void Simulate(std::span<const void* const> inputs, void* result) override;

  size_t count_;
  size_t ranks_;
  size_t chunk_;
  std::vector<std::vector<float>> worker_errors_;  // [rank], padded
  std::vector<std::vector<float>> server_errors_;  // [rank], a chunk
  std::vector<double> total_in_;
  std::vector<double> total_out_;
};

}  // namespace onebit::perf
