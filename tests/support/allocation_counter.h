// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts heap allocations of a program that links onebit_allocation_counter.
#pragma once

#include <cstdint>

namespace onebit::testing {

// Allocations of the calling thread so far, by operator new and, without sanitizers, by malloc and
// similar functions.
uint64_t AllocationsOfThisThread();
// The same for all threads together.
uint64_t AllocationsOfAllThreads();

}  // namespace onebit::testing
