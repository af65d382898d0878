// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The structures behind the opaque handles of the C API, and helpers that its functions share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/fork.h"
#include "base/guard.h"
#include "comm/comm.h"
#include "exec/engine.h"
#include "lossless/lossless_call.h"
#include "onebit/onebit.h"

namespace onebit {

// State that a communicator and its compressors share, because either may be destroyed first.
struct CommLink {
  std::atomic<onebitComm_s*> comm;  // null after the communicator was destroyed
  std::mutex mutex;                 // guards tensor_ids; taken when compressors come and go
  std::set<uint32_t> tensor_ids;    // of live compressors; ids in use twice could not be told apart

  explicit CommLink(onebitComm_s* owner) : comm(owner) {}
};

// Holds a tensor id of a communicator.
class TensorIdUse {
 public:
  static Result<TensorIdUse> Begin(std::shared_ptr<CommLink> link, uint32_t id);
  TensorIdUse(TensorIdUse&&) noexcept = default;
  TensorIdUse& operator=(TensorIdUse&& other) noexcept {
    std::swap(link_, other.link_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~TensorIdUse();

  onebitComm_s* comm() const { return link_->comm.load(std::memory_order_acquire); }

 private:
  TensorIdUse(std::shared_ptr<CommLink> link, uint32_t id) : link_(std::move(link)), id_(id) {}

  std::shared_ptr<CommLink> link_;  // null when moved from
  uint32_t id_;
};

class HostStream;

// Calls on a stream of onebitStreamCreate that have not ended.
struct PendingWork {
  std::atomic<uint32_t> count{0};
  std::atomic<HostStream*> stream{nullptr};  // valid while count > 0
};

}  // namespace onebit

struct onebitComm_s {
  explicit onebitComm_s(std::unique_ptr<onebit::Comm> c);
  ~onebitComm_s();

  std::unique_ptr<onebit::Comm> comm;
  onebit::Engine engine;
  std::shared_ptr<onebit::CommLink> link = std::make_shared<onebit::CommLink>(this);
  onebit::PendingWork pending;
  const onebit::Origin origin;
};

struct onebitCompressor_s {
  onebit::PlannedCompressor planned;
  onebit::TensorIdUse id;
  std::atomic<bool> is_in_use{false};
  std::optional<onebit::LosslessCopy> lossless = {};  // of onebitCodecLossless
  std::atomic<bool> has_sync{false};  // the sync then owns its use; changed while in use
  onebit::PendingWork pending = {};
  const onebit::Origin origin = {};
};

namespace onebit {

// Creates the handle of a new communicator. Its calls are stream-ordered if the transport's
// messages are, or for one rank, if it asked for such a transport.
Result<std::unique_ptr<onebitComm_s>> NewHandle(std::unique_ptr<Comm> comm, bool is_stream_ordered);

template <typename Body>
onebitResult_t Guard(Body&& body) noexcept {
  return GuardAs<onebitResult_t>(std::forward<Body>(body));
}

std::optional<kernels::DataType> TypeOf(onebitDataType_t type);
onebitDataType_t ApiTypeOf(kernels::DataType type);

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

// The same for a compressor that may be null.
Result<std::optional<CompressorUse>> BeginUse(onebitCompressor_t compressor);

// Copies a stats structure into the caller's, which may come from an older or newer header.
Status CopyStats(const void* ours, size_t our_size, void* theirs);

}  // namespace onebit
