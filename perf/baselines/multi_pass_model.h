// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What MultiPassAllReduce must give, one element after the other and for all ranks at once. It
// shares no code with it, and is the same to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perf/baselines/expectation.h"

namespace onebit::perf {

class MultiPassModel : public Expectation {
 public:
  MultiPassModel(size_t count, int ranks);

  int calls() const override { return 3; }  // residuals matter from the second on
  std::span<const float> Next(std::span<const CheckedInput> inputs) override;
  // The sums of outputs, of worker errors, and of server errors times the number of ranks must be
  // the sum of inputs, for every element.
  uint64_t CountLostElements() const override;

 private:
  size_t count_;
  size_t ranks_;
  size_t chunk_;
  std::vector<std::vector<float>> worker_errors_;  // [rank], padded
  std::vector<std::vector<float>> server_errors_;  // [rank], a chunk
  std::vector<float> output_;
  std::vector<double> total_in_;
  std::vector<double> total_out_;
};

}  // namespace onebit::perf
