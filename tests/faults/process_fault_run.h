// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs a case and finds all violations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/faults/fault_case.h"

namespace onebit::testing {

// Calls before the fault. Calls that may meet it follow: some faults show only in the next call.
inline constexpr int kCallsBefore = 1;
inline constexpr int kCaseCalls = kCallsBefore + 2;

struct FaultReport {
  // From the fault to the last rank's error; no value if there was no error.
  std::optional<double> detection_ms;
  std::string outcome;    // "error", "success", "wrong output"
  std::string named;      // by the errors: "the rank", "an end of the message"; else "nobody"
  std::string residuals;  // "whole"; "none" in dense calls
  std::string recovered;  // "yes", "yes, without the rank", "not needed"; "no" with a violation
  std::vector<std::string> violations;  // of the rules; empty if there are none
};

// A case that takes far too long prints a message and ends the program.
FaultReport RunFaultCase(const FaultCase& one);

}  // namespace onebit::testing
