// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the ranks send each other in a step of an optimizer.
#pragma once

namespace onebit {

// The value is the character that schedules are printed with.
enum class StepKind : char {
  kSwallowed = 'i',           // DeepSpeed's first step, which sets up buffers and updates nothing
  kDense = 'F',               // full precision
  kDenseAndCompressed = 'B',  // both a full precision and a one-bit average
  kCompressed = '1',          // one bit per element
  kSync = 'u',                // the same, ending an interval after DeepSpeed's freeze
  kLocal = '.',               // nothing
};

constexpr char LetterOf(StepKind kind) { return static_cast<char>(kind); }

// Costs the bits of a gradient element, 16 or 32.
constexpr bool SendsDense(StepKind kind) {
  return kind == StepKind::kDense || kind == StepKind::kDenseAndCompressed;
}

// Costs one bit per element, on top of what is dense.
constexpr bool SendsCompressed(StepKind kind) {
  return kind == StepKind::kDenseAndCompressed || kind == StepKind::kCompressed ||
         kind == StepKind::kSync;
}

}  // namespace onebit
