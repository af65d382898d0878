// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts heap allocations of a program that links onebit_allocation_counter.
#pragma once

#include <cstdint>

namespace onebit::testing {

// Allocations by operator new and, without sanitizers, by malloc and its kin, on the calling thread
// so far.
uint64_t AllocationsOfThisThread();
// The same of all threads together.
uint64_t AllocationsOfAllThreads();

}  // namespace onebit::testing
