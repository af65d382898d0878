// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts mutexes taken in a program that links onebit_lock_counter.
#pragma once

#include <cstdint>

namespace onebit::testing {

// Locks of mutexes and read-write locks by the calling thread so far. Always 0 under sanitizers,
// which replace the same functions.
uint64_t LocksOfThisThread();
// The same for all threads together.
uint64_t LocksOfAllThreads();

}  // namespace onebit::testing
