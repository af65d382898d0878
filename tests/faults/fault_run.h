// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs a case, and finds whatever is not as it must be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/faults/fault_case.h"

namespace onebit::testing {

// One call without the fault, then those that may meet it: some faults show only in the next call.
inline constexpr int kCallsBefore = 1;
inline constexpr int kCaseCalls = kCallsBefore + 2;

struct FaultReport {
  // From the fault to the error of the rank that heard of it last; none if there was no error.
  std::optional<double> detection_ms;
  std::string outcome;  // "error", "success", "wrong output"
  std::string named;    // by the errors: "the rank", "an end of the message"; "nobody" without one
  std::string residuals;  // "whole"; "none" in dense calls
  std::string recovered;  // "yes", "yes, without the rank", "not needed"; "no" with a violation
  std::vector<std::string> violations;  // of what must hold; empty: all is well
};

// A case that takes far too long ends the program with a word about it.
FaultReport RunFaultCase(const FaultCase& one);

}  // namespace onebit::testing
