// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds the NCCL behind this library, whose functions do the work.
#pragma once

#include <atomic>

#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// Address of the function `name` ("ncclAllReduce") of the real NCCL; null if that lacks it, or if
// there is none, which is logged once, or no memory to look for it. Looks it up in the file of
// ONEBIT_NCCL_LIB; else in a libnccl.so.2 that the process has loaded; else in what the loader has
// after this library; else in the libnccl.so.2 that the loader finds. Never at start-up, when
// another copy than the program's own could be found. Thread-safe.
void* FindReal(const char* name) noexcept;

// A function of the real NCCL, looked up at its first use.
template <typename Function>
class RealFunction {
 public:
  explicit constexpr RealFunction(const char* name) : name_(name) {}

  // Null if there is no such function.
  Function* get() {
    void* found = address_.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = FindReal(name_);
      address_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Function*>(found);
  }
  // ncclInvalidUsage if the real NCCL is too old for it.
  template <typename... Arguments>
  Result operator()(Arguments... arguments) {
    Function* const function = get();
    return function == nullptr ? kInvalidUsage : function(arguments...);
  }

 private:
  const char* const name_;
  std::atomic<void*> address_{nullptr};
};

}  // namespace onebit::preload
