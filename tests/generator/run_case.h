// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs a case on ranks of this process, over transport local.
#pragma once

#include <optional>
#include <string>

#include "tests/generator/case.h"
#include "tests/generator/expected.h"

namespace onebit::testing::generator {

// The first difference between what the library and the models say, or a call that failed.
struct Finding {
  std::string text;
  // Of a difference: where, and the 16 bytes at most that should be there. -1: a call failed.
  int round = -1;
  int rank = 0;
  int tensor = 0;
  size_t byte = 0;
  Bytes expected;
};

std::optional<Finding> RunCase(const Case& c);

}  // namespace onebit::testing::generator
