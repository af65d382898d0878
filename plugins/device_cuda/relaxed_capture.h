// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RelaxedCapture: permits calls that another thread's graph capture would forbid.
#pragma once

#include "plugins/device_cuda/cuda_driver.h"

namespace onebit::device_cuda {

// While a thread captures a graph in CUDA's default mode, calls such as cuMemAlloc or cuEventQuery
// fail on any thread, and break that capture. Our calls touch no captured stream, so while this
// object lives they neither fail nor break one.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver)
      : driver_(driver),
        is_set_(driver.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (is_set_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  const Driver& driver_;
  // The constructor swaps this with the thread's previous mode.
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool is_set_;
};

}  // namespace onebit::device_cuda
