// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What every function of the stand-in does first: is counted, fails on demand, and looks whether
// the driver works at all.
#pragma once

#include <atomic>
#include <cstdint>

// Its declarations are to be seen from outside although this library hides everything else.
#pragma GCC visibility push(default)
#include <cuda.h>

#include "tests/support/cuda/stand_in.h"
#pragma GCC visibility pop

namespace onebit::testing::cuda {

// One per function, with static storage.
class CallSite {
 public:
  explicit CallSite(const char* name);

  // Counts a call. Returns what it is to return at once: an error on demand, NOT_INITIALIZED before
  // cuInit and after a fork, NOT_PERMITTED in a function of cuLaunchHostFunc; or CUDA_SUCCESS.
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

// Passes an error on.
#define ONEBIT_CU_TRY(call)                                                 \
  do {                                                                      \
    if (const CUresult tried = (call); tried != CUDA_SUCCESS) return tried; \
  } while (false)

void SetInitialised();

// True while this thread runs a function of cuLaunchHostFunc.
inline thread_local bool is_in_host_function = false;

// What onebitTestCudaGetCounts returns, apart from what call sites know.
struct Counters {
  std::atomic<uint64_t> host_waits{0};
  std::atomic<uint64_t> while_capturing{0};
};
Counters& TheCounters();

}  // namespace onebit::testing::cuda
