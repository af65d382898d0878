// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps residuals in host memory while code that cannot access a device works on them.
#pragma once

#include <new>

#include "api/handles.h"
#include "compressor/compressor.h"

namespace onebit {

// Waits until no call on a CUDA stream of the compressor's communicator is in progress.
inline Status AwaitStreams(const onebitCompressor_s& compressor) {
  const onebitComm_t comm = compressor.id.comm();
  return comm == nullptr ? OkStatus() : comm->engine.AwaitStreams();
}

class ScopedHostResidency {
 public:
  explicit ScopedHostResidency(onebitCompressor_t handle)
      : handle_(*handle),
        compressor_(handle->planned.compressor),
        home_(compressor_.config().location) {}
  // Moves them back if an exception has skipped End.
  ~ScopedHostResidency() {
    if (has_ended_) return;
    try {
      static_cast<void>(compressor_.MoveTo(home_));
    } catch (const std::bad_alloc&) {  // the residuals stay on the host
    }
  }
  ScopedHostResidency(const ScopedHostResidency&) = delete;
  ScopedHostResidency& operator=(const ScopedHostResidency&) = delete;

  // Waits for the device, like End.
  Status Begin() {
    ONEBIT_TRY(AwaitStreams(handle_));
    return compressor_.MoveTo(MemoryLocation{});
  }
  // If there is no memory for it the residuals stay on the host, and every later call fails.
  Status End() {
    has_ended_ = true;
    return compressor_.MoveTo(home_);
  }

 private:
  const onebitCompressor_s& handle_;
  Compressor& compressor_;
  const MemoryLocation home_;
  bool has_ended_ = false;
};

}  // namespace onebit
