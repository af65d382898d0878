// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A case as a C program that makes the same calls.
#pragma once

#include <string>

#include "tests/generator/run_case.h"

namespace onebit::testing::generator {

// The program returns 0 if all calls succeed and the bytes of the finding are as expected.
std::string ProgramOf(const Case& c, const Finding& finding);

}  // namespace onebit::testing::generator
