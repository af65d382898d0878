// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Common start of every function of the stand-in: counts the call, fails on demand, and checks that
// the driver is usable.
#pragma once

#include <atomic>
#include <cstdint>

// Exports declarations, because the library hides everything else.
#pragma GCC visibility push(default)
#include <cuda.h>

#include "tests/support/cuda/cuda_stand_in.h"
#pragma GCC visibility pop

namespace onebit::testing::cuda {

// One object per function, with static storage.
class CallSite {
 public:
  explicit CallSite(const char* name);

  // Counts a call. Returns the error with which it must return at once: one on demand,
  // NOT_INITIALIZED before cuInit and after a fork, NOT_PERMITTED inside a function of
  // cuLaunchHostFunc; otherwise CUDA_SUCCESS.
  CUresult Begin(bool needs_init);

  const char* name() const { return name_; }
  uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  CallSite* next() const { return next_; }

 private:
  const char* const name_;
  std::atomic<uint64_t> calls_{0};
  CallSite* next_ = nullptr;
};

#define ONEBIT_BEGIN_CALL(function, needs_init)                                             \
  do {                                                                                      \
    static ::onebit::testing::cuda::CallSite site(#function);                               \
    if (const CUresult begun = site.Begin(needs_init); begun != CUDA_SUCCESS) return begun; \
  } while (false)

#define ONEBIT_BEGIN(function) ONEBIT_BEGIN_CALL(function, true)

// Returns from the caller with the error, if there is one.
#define ONEBIT_CU_TRY(call)                                                 \
  do {                                                                      \
    if (const CUresult tried = (call); tried != CUDA_SUCCESS) return tried; \
  } while (false)

void SetInitialised();

// With CUDA_STAND_IN_DRIVER_LOCK: while one of these exists, calls of other threads wait before
// they begin, as for a lock of the driver.
class DriverLock {
 public:
  DriverLock();
  ~DriverLock();
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;
};
void EnableDriverLock();

// True while this thread runs a function of cuLaunchHostFunc.
inline thread_local bool is_in_host_function = false;

// Results of onebitTestCudaGetCounts, apart from those that call sites count.
struct Counters {
  std::atomic<uint64_t> host_waits{0};
  std::atomic<uint64_t> while_capturing{0};
};
Counters& TheCounters();

}  // namespace onebit::testing::cuda
