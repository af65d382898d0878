// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// RelaxedCapture: calls that a graph capture of somebody else would forbid.
#pragma once

#include "plugins/device_cuda/cuda_driver.h"

namespace onebit::device_cuda {

// While a thread captures a graph in CUDA's default mode, calls such as cuMemAlloc or cuEventQuery
// of any thread fail, and break that capture. Ours touch no captured stream, so for as long as this
// object lives they neither fail nor break anything.
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
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then that of the thread
  const bool is_set_;
};

}  // namespace onebit::device_cuda
