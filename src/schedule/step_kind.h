// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The kinds of an optimizer's steps, by what the ranks send each other.
#pragma once

namespace onebit {

// The value is the character that schedules are printed with.
enum class StepKind : char {
  kSwallowed = 'i',           // DeepSpeed's first step, which sets up buffers and updates nothing
  kDense = 'F',               // full precision
  kDenseAndCompressed = 'B',  // both a full precision and a one-bit average
  kCompressed = '1',          // one bit per element
  kSync = 'u',                // one bit per element; ends an interval after DeepSpeed's freeze
  kLocal = '.',               // nothing
};

constexpr char LetterOf(StepKind kind) { return static_cast<char>(kind); }

// True if the step costs the bits of a gradient element, 16 or 32.
constexpr bool SendsDense(StepKind kind) {
  return kind == StepKind::kDense || kind == StepKind::kDenseAndCompressed;
}

// True if the step costs one bit per element, in addition to what is dense.
constexpr bool SendsCompressed(StepKind kind) {
  return kind == StepKind::kDenseAndCompressed || kind == StepKind::kCompressed ||
         kind == StepKind::kSync;
}

}  // namespace onebit
