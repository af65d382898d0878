// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes heap allocations fail in a program that links onebit_allocation_failer: operator new and,
// on glibc without sanitizers, aligned_alloc and calloc, which are all that this project calls.
// malloc itself is left to the C libraries below, which are not under test.
#pragma once

#include <cstdint>

namespace onebit::testing {

enum class Shortage { kOnce, kFromThenOn };

// Until the end of the scope, lets `before` allocations of this thread succeed and makes the next
// one fail; with kFromThenOn all later ones as well. One at a time per thread.
class FailingAllocations {
 public:
  FailingAllocations(uint64_t before, Shortage shortage);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  bool has_struck() const;
};

// The same for all threads of the process with this name. One at a time.
class FailingAllocationsOf {
 public:
  FailingAllocationsOf(const char* thread_name, uint64_t before, Shortage shortage);
  ~FailingAllocationsOf();
  FailingAllocationsOf(const FailingAllocationsOf&) = delete;
  FailingAllocationsOf& operator=(const FailingAllocationsOf&) = delete;

  bool has_struck() const;
};

// Allocations by operator new that were not deleted yet, in all threads.
int64_t LiveAllocations();

}  // namespace onebit::testing
