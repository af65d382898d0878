// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Interposes the lock functions of the C library, which std::mutex and std::shared_mutex call.
#include "tests/support/lock_counter.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

#include "tests/support/sanitizers.h"

namespace {

constinit thread_local uint64_t locks = 0;
constinit std::atomic<uint64_t> all_locks = 0;

}  // namespace

namespace onebit::testing {

uint64_t LocksOfThisThread() { return locks; }
uint64_t LocksOfAllThreads() { return all_locks; }

}  // namespace onebit::testing

#if !ONEBIT_HAS_SANITIZER

// Finds the C library's function at the first call. A race finds it twice, which is harmless.
#define ONEBIT_COUNTED_LOCK(name, type)                                                    \
  extern "C" int name(type* lock) noexcept {                                               \
    static int (*next)(type*) = nullptr;                                                   \
    if (next == nullptr) next = reinterpret_cast<int (*)(type*)>(dlsym(RTLD_NEXT, #name)); \
    ++locks;                                                                               \
    all_locks.fetch_add(1, std::memory_order_relaxed);                                     \
    return next(lock);                                                                     \
  }

ONEBIT_COUNTED_LOCK(pthread_mutex_lock, pthread_mutex_t)
ONEBIT_COUNTED_LOCK(pthread_mutex_trylock, pthread_mutex_t)
ONEBIT_COUNTED_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
ONEBIT_COUNTED_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)

#endif
