// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Lets heap allocations fail in a program that links onebit_allocation_failer: operator new and, on
// glibc without sanitizers, aligned_alloc and calloc, which is what this project calls; malloc
// itself is left to the C libraries below, which are not under test.
#pragma once

#include <cstdint>

namespace onebit::testing {

enum class Shortage { kOnce, kFromThenOn };

// The allocation of this thread before which it makes `before` others fails, and with kFromThenOn
// all that follow it, until the end of the scope. One at a time per thread.
class FailingAllocations {
 public:
  FailingAllocations(uint64_t before, Shortage shortage);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  bool has_struck() const;
};

// The same for all threads of the process that have this name. One at a time.
class FailingAllocationsOf {
 public:
  FailingAllocationsOf(const char* thread_name, uint64_t before, Shortage shortage);
  ~FailingAllocationsOf();
  FailingAllocationsOf(const FailingAllocationsOf&) = delete;
  FailingAllocationsOf& operator=(const FailingAllocationsOf&) = delete;

  bool has_struck() const;
};

// What operator new has given and operator delete has not got back, in all threads.
int64_t LiveAllocations();

}  // namespace onebit::testing
