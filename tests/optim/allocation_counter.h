// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts calls of operator new by thread. A program that links it has its operators replaced.
#pragma once

#include <cstddef>

namespace onebit::testing {

// Allocations of this thread so far.
size_t AllocationCount();

}  // namespace onebit::testing
