// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda/driver_calls.h"

#include <pthread.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>

namespace onebit::testing::cuda {
namespace {

struct Rule {
  std::string function;
  unsigned skip = 0;
  unsigned times = 0;
  CUresult result = CUDA_SUCCESS;
};

constexpr size_t kMaxRules = 16;

struct Calls {
  std::mutex mutex;  // guards everything but the atomics
  CallSite* first = nullptr;
  Rule rules[kMaxRules];
  std::atomic<unsigned> active_rules{0};
  std::atomic<bool> is_initialised{false};
  std::atomic<bool> is_child{false};
  Counters counters;
  std::atomic<bool> has_driver_lock{false};
  std::mutex driver_mutex;  // guards is_driver_locked
  std::condition_variable driver_free;
  bool is_driver_locked = false;
};

Calls& TheCalls() {
  static Calls* const calls = new Calls;
  return *calls;
}

// Returns CUDA_SUCCESS unless a rule applies.
CUresult ApplyRules(Calls& calls, const char* function) {
  const std::lock_guard lock(calls.mutex);
  for (Rule& rule : calls.rules) {
    if (rule.times == 0 || rule.function != function) continue;
    if (rule.skip > 0) {
      --rule.skip;
      return CUDA_SUCCESS;
    }
    if (--rule.times == 0) calls.active_rules.fetch_sub(1);
    return rule.result;
  }
  return CUDA_SUCCESS;
}

uint64_t CallsOf(const char* function) {
  Calls& calls = TheCalls();
  const std::lock_guard lock(calls.mutex);
  for (CallSite* site = calls.first; site != nullptr; site = site->next()) {
    if (std::strcmp(site->name(), function) == 0) return site->calls();
  }
  return 0;
}

uint64_t Sum(std::initializer_list<const char*> functions) {
  uint64_t sum = 0;
  for (const char* function : functions) sum += CallsOf(function);
  return sum;
}

}  // namespace

CallSite::CallSite(const char* name) : name_(name) {
  Calls& calls = TheCalls();
  const std::lock_guard lock(calls.mutex);
  next_ = calls.first;
  calls.first = this;
}

CUresult CallSite::Begin(bool needs_init) {
  Calls& calls = TheCalls();
  if (calls.is_child.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (needs_init && !calls.is_initialised.load(std::memory_order_acquire)) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (is_in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  if (calls.has_driver_lock.load(std::memory_order_acquire)) {
    std::unique_lock lock(calls.driver_mutex);
    calls.driver_free.wait(lock, [&] { return !calls.is_driver_locked; });
  }
  if (calls.active_rules.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  return ApplyRules(calls, name_);
}

void SetInitialised() {
  Calls& calls = TheCalls();
  if (!calls.is_initialised.exchange(true)) {
    pthread_atfork(nullptr, nullptr, [] { TheCalls().is_child.store(true); });
  }
}

Counters& TheCounters() { return TheCalls().counters; }

void EnableDriverLock() { TheCalls().has_driver_lock.store(true, std::memory_order_release); }

DriverLock::DriverLock() {
  Calls& calls = TheCalls();
  if (!calls.has_driver_lock.load(std::memory_order_acquire)) return;
  std::unique_lock lock(calls.driver_mutex);
  calls.driver_free.wait(lock, [&] { return !calls.is_driver_locked; });
  calls.is_driver_locked = true;
}

DriverLock::~DriverLock() {
  Calls& calls = TheCalls();
  if (!calls.has_driver_lock.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(calls.driver_mutex);
  calls.is_driver_locked = false;
  calls.driver_free.notify_all();
}

}  // namespace onebit::testing::cuda

using onebit::testing::cuda::CallsOf;
using onebit::testing::cuda::Rule;
using onebit::testing::cuda::Sum;
using onebit::testing::cuda::TheCalls;

void onebitTestCudaFail(const char* function, unsigned skip, unsigned times, CUresult result) {
  auto& calls = TheCalls();
  const std::lock_guard lock(calls.mutex);
  Rule* place = nullptr;
  for (Rule& rule : calls.rules) {
    if (rule.times > 0 && rule.function == function) {
      rule.times = 0;
      calls.active_rules.fetch_sub(1);
    }
    if (rule.times == 0 && place == nullptr) place = &rule;
  }
  if (times == 0 || place == nullptr) return;
  *place = {function, skip, times, result};
  calls.active_rules.fetch_add(1);
}

uint64_t onebitTestCudaCalls(const char* function) { return CallsOf(function); }

void onebitTestCudaGetCounts(onebitTestCudaCounts* counts) {
  const auto& counters = onebit::testing::cuda::TheCounters();
  counts->launches = Sum({"cuLaunchKernel"});
  counts->allocations = Sum({"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemAllocManaged"});
  counts->frees = Sum({"cuMemFree_v2", "cuMemFreeHost"});
  counts->host_waits = counters.host_waits.load();
  counts->queries = Sum({"cuStreamQuery", "cuEventQuery"});
  counts->while_capturing = counters.while_capturing.load();
}
