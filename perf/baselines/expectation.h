// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What checked calls must give. Inputs are functions of call, rank and position, so that every rank
// knows those of all, and checks its own output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perf/common/elements.h"

namespace onebit::perf {

// The input of one rank in one call: multiples of 1/64 below 4 in magnitude. Sums of such numbers
// over 1024 ranks are exact in fp32, in whatever order a system adds.
class CheckedInput {
 public:
  CheckedInput(int call, int rank);
  float At(size_t index) const;

 private:
  SeededInput input_;
};

// A model of a system, on every rank.
class Expectation {
 public:
  virtual ~Expectation() = default;

  // Calls that make sense to check in a row.
  virtual int calls() const = 0;
  // The output of the next call, of which inputs[r] is rank r's. Valid until the next one.
  virtual std::span<const float> Next(std::span<const CheckedInput> inputs) = 0;
  // After the last call: elements whose inputs are neither in an output nor kept for later calls.
  virtual uint64_t CountLostElements() const { return 0; }
};

// The sum, every time.
class ExactSum : public Expectation {
 public:
  explicit ExactSum(size_t count) : sum_(count) {}
  int calls() const override { return 1; }
  std::span<const float> Next(std::span<const CheckedInput> inputs) override;

 private:
  std::vector<float> sum_;
};

}  // namespace onebit::perf
