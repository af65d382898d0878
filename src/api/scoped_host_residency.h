// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Residuals in host memory for as long as something works on them that knows no device.
#pragma once

#include <new>

#include "api/handles.h"
#include "compressor/compressor.h"

namespace onebit {

// Waits until no stream-ordered call of the compressor's communicator is under way.
inline Status AwaitStreams(const onebitCompressor_s& compressor) {
  const onebitComm_t comm = compressor.id.comm();
  return comm == nullptr ? OkStatus() : comm->engine.AwaitStream();
}

class ScopedHostResidency {
 public:
  explicit ScopedHostResidency(onebitCompressor_t handle)
      : handle_(*handle),
        compressor_(handle->planned.compressor),
        home_(compressor_.config().location) {}
  // Where an exception has left End out.
  ~ScopedHostResidency() {
    if (has_ended_) return;
    try {
      static_cast<void>(compressor_.MoveTo(home_));
    } catch (const std::bad_alloc&) {  // they stay
    }
  }
  ScopedHostResidency(const ScopedHostResidency&) = delete;
  ScopedHostResidency& operator=(const ScopedHostResidency&) = delete;

  // Waits for the device, like End.
  Status Begin() {
    ONEBIT_TRY(AwaitStreams(handle_));
    return compressor_.MoveTo(MemoryLocation{});
  }
  // Without the memory for it they stay, which every later call tells.
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
