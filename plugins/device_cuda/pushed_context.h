// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// PushedContext: makes a context current in a thread for a scope.
#pragma once

#include "onebit/onebit.h"
#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {

// Pushes a context on the thread's stack, and pops it at the end unless it is kept.
class PushedContext {
 public:
  explicit PushedContext(const Driver& driver) : driver_(driver) {}
  PushedContext(const PushedContext&) = delete;
  PushedContext& operator=(const PushedContext&) = delete;
  ~PushedContext() {
    CUcontext popped = nullptr;
    if (is_pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }

  onebitResult_t Push(CUcontext context) {
    ONEBIT_CUDA_TRY(Check(driver_, driver_.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent"));
    is_pushed_ = true;
    return onebitSuccess;
  }
  void Keep() { is_pushed_ = false; }

 private:
  const Driver& driver_;
  bool is_pushed_ = false;
};

}  // namespace onebit::device_cuda
