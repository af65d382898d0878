// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the opaque handles of the C API point to, and what its functions share.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/guard.h"
#include "collectives/engine.h"
#include "comm/comm.h"
#include "onebit/onebit.h"

struct onebitComm_s {
  explicit onebitComm_s(std::unique_ptr<onebit::Comm> c) : comm(std::move(c)), engine(*comm) {}

  std::unique_ptr<onebit::Comm> comm;
  onebit::Engine engine;
  // Shared with its compressors; null inside once the communicator is gone.
  std::shared_ptr<std::atomic<onebitComm_s*>> self =
      std::make_shared<std::atomic<onebitComm_s*>>(this);
};

struct onebitCompressor_s {
  onebit::PlannedCompressor planned;
  std::shared_ptr<std::atomic<onebitComm_s*>> comm;
  std::atomic<bool> is_in_use{false};
};

namespace onebit {

template <typename Body>
onebitResult_t Guard(Body&& body) noexcept {
  return GuardAs<onebitResult_t>(std::forward<Body>(body));
}

std::optional<kernels::DataType> TypeOf(onebitDataType_t type);

// Holds a compressor for the duration of a call; one thread at a time.
class CompressorUse {
 public:
  static Result<CompressorUse> Begin(onebitCompressor_t compressor);
  CompressorUse(CompressorUse&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CompressorUse& operator=(CompressorUse&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CompressorUse() {
    if (handle_ != nullptr) handle_->is_in_use.store(false, std::memory_order_release);
  }

 private:
  explicit CompressorUse(onebitCompressor_t handle) : handle_(handle) {}

  onebitCompressor_t handle_;
};

// Copies a stats structure into the caller's, which may be that of an older or newer header.
Status CopyStats(const void* ours, size_t our_size, void* theirs);

}  // namespace onebit
