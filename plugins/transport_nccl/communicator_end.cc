// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The end of a communicator: a normal one, or an abort.
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "plugins/common/run_detached.h"
#include "plugins/transport_nccl/communicator.h"
#include "wait/backoff.h"

namespace onebit::nccl {
namespace {

// A holder of the lock that is not stuck in NCCL releases it within this time.
constexpr uint64_t kHolderMs = 1000;
// Limits each NCCL call of an abort.
constexpr uint64_t kAbortMs = 5000;
// A driver that nobody holds up answers within this time.
constexpr uint64_t kDriverMs = 1000;

}  // namespace

Communicator::~Communicator() {
  CommHandle handle = handle_.load(std::memory_order_acquire);
  if (handle == nullptr || is_joined_ || is_ending_.exchange(true, std::memory_order_acq_rel)) {
    return;
  }
  const cuda::CurrentContext current(*binding_.driver, binding_.device_context);
  if (!current.is_alive()) return;
  if (state() != onebitSuccess) {
    AbortHandle(handle);
    return;
  }
  EndCleanly(handle);
}

// ncclCommFinalize and ncclCommDestroy wait for started work, and so for the peers.
void Communicator::EndCleanly(CommHandle handle) {
  const auto timeout_ms = context_.options().close_ms;
  if (!is_blocking_ && api_.CommFinalize != nullptr) {
    int result = api_.CommFinalize(handle);
    if (result == kInProgress) result = Await(handle, timeout_ms);
    if (result == kSuccess) {
      api_.CommDestroy(handle);
      return;
    }
    const std::string reason = result == kInProgress ? "its work did not finish within " +
                                                           std::to_string(timeout_ms) + " ms"
                                                     : api_.Explain(result);
    context_.Warn("rank %d: the communicator was aborted when it was closed: %s", rank_,
                  reason.c_str());
    api_.CommAbort(handle);
    return;
  }
  // A time-out does not abort: an abort concurrent with this call would free what it uses.
  const auto end = [handle, binding = binding_](const NcclApi& nccl) {
    const cuda::CurrentContext current(*binding.driver, binding.device_context);
    if (!current.is_alive()) return;
    if (nccl.CommFinalize != nullptr) nccl.CommFinalize(handle);
    nccl.CommDestroy(handle);
  };
  if (!TryDetached(end, timeout_ms)) {
    context_.Warn(
        "rank %d: the communicator's work did not finish within %llu ms, so it is left to NCCL",
        rank_, static_cast<unsigned long long>(timeout_ms));
  }
}

// NCCL's abort of a blocking communicator, and of any before 2.14, waits until no graph holds a
// call of it.
void Communicator::AbortHandle(CommHandle handle) {
  if (!is_blocking_) {
    api_.CommAbort(handle);
    return;
  }
  const auto abort = [handle](const NcclApi& nccl) { nccl.CommAbort(handle); };
  try {
    CallDetached(abort, kAbortMs);
  } catch (const std::exception&) {
    abort(api_);  // no thread or no memory for one: peers must hear of it
  }
}

// Ends work in progress and makes calls that wait in NCCL return; the handle stays valid.
int Communicator::Revoke(CommHandle handle) {
  struct Revocation {
    std::mutex mutex;
    bool is_left = false;  // nobody waits any more, and the handle may be invalid
    int result = kInProgress;
  };
  std::shared_ptr<Revocation> revocation;
  try {
    revocation = std::make_shared<Revocation>();
  } catch (const std::bad_alloc&) {
    return kSystemError;
  }
  const auto revoke = [handle, revocation](const NcclApi& nccl) {
    int result = nccl.CommRevoke(handle, 0);
    PollUntil(DeadlineAfter(kAbortMs), [&] {
      const std::lock_guard lock(revocation->mutex);
      if (revocation->is_left) return true;
      if (result == kInProgress) {
        int state = kInProgress;
        const int code = nccl.CommGetAsyncError(handle, &state);
        result = code == kSuccess ? state : code;
      }
      revocation->result = result;
      return result != kInProgress;
    });
  };
  try {
    CallDetached(revoke, kAbortMs);
  } catch (const std::exception&) {
    return kSystemError;
  }
  const std::lock_guard lock(revocation->mutex);
  revocation->is_left = true;
  return revocation->result;
}

bool Communicator::CallDetached(std::function<void(const NcclApi&)> call,
                                uint64_t timeout_ms) const {
  return plugin::RunDetached([api = context_.shared_api(), call = std::move(call)] { call(*api); },
                             [] {}, timeout_ms, [] { return false; });
}

bool Communicator::TryDetached(std::function<void(const NcclApi&)> call,
                               uint64_t timeout_ms) const {
  try {
    return CallDetached(std::move(call), timeout_ms);
  } catch (const std::exception&) {
    return false;
  }
}

bool Communicator::LockWithin(uint64_t timeout_ms) {
  return PollUntil(DeadlineAfter(timeout_ms), [this] { return lock_.TryLock(); });
}

void Communicator::Abort() {
  if (!lock_.MarkAborted()) return;
  if (LockWithin(kHolderMs)) {
    ReleaseLock();
  } else if (is_joined_ || api_.CommRevoke == nullptr) {
    EndAborted();
  } else {
    EndWhileHeld();
  }
}

// A thread that holds the driver may wait for the work that an abort is to end. NCCL's abort and
// revoke raise their flags before they call the driver, and set the device themselves.
bool Communicator::IsDeviceAlive() const {
  try {
    auto is_alive = std::make_shared<std::atomic<bool>>(true);
    plugin::RunDetached(
        [binding = binding_, is_alive] {
          const cuda::CurrentContext current(*binding.driver, binding.device_context);
          is_alive->store(current.is_alive(), std::memory_order_relaxed);
        },
        [] {}, kDriverMs, [] { return false; });
    return is_alive->load(std::memory_order_relaxed);
  } catch (const std::exception&) {
    return true;
  }
}

void Communicator::EndAborted() {
  CommHandle handle = handle_.load(std::memory_order_acquire);
  if (handle == nullptr || is_ending_.exchange(true, std::memory_order_acq_rel)) return;
  if (!IsDeviceAlive()) return;
  if (!is_joined_) {
    AbortHandle(handle);
    return;
  }
  try {
    StopJoined(handle);
  } catch (const std::bad_alloc&) {  // no memory for the log line
  }
}

// Stops a handle of the application if NCCL can do that, and never frees it.
void Communicator::StopJoined(CommHandle handle) {
  if (api_.CommRevoke == nullptr) {
    context_.Warn(
        "rank %d: NCCL %s cannot stop a communicator and leave it to its owner, who must call "
        "ncclCommAbort",
        rank_, api_.release.c_str());
    return;
  }
  const int result = Revoke(handle);
  if (result == kInProgress) {
    context_.Warn(
        "rank %d: NCCL has not stopped the joined communicator within %llu ms and is still trying: "
        "the communicator can no longer be used or ended",
        rank_, static_cast<unsigned long long>(kAbortMs));
  } else if (result != kSuccess) {
    context_.Warn(
        "rank %d: NCCL has not stopped the joined communicator, whose owner must call "
        "ncclCommAbort: %s",
        rank_, api_.Explain(result).c_str());
  }
}

// Makes the holder of the lock leave NCCL first, so that nothing is freed while it is in use.
void Communicator::EndWhileHeld() {
  CommHandle handle = handle_.load(std::memory_order_acquire);
  // From here on the holder leaves the end to this thread.
  if (handle == nullptr || is_ending_.exchange(true, std::memory_order_acq_rel)) return;
  if (!IsDeviceAlive()) return;
  const int revoked = Revoke(handle);
  const bool has_lock = LockWithin(kHolderMs);
  if (revoked == kInProgress) {
    // Destroying the communicator during the revoke would free what it uses. The revoke has raised
    // NCCL's flags, so the work ends.
    context_.Warn(
        "rank %d: the communicator was aborted and its memory is not freed: NCCL has not revoked "
        "it within %llu ms and is still trying",
        rank_, static_cast<unsigned long long>(kAbortMs));
    if (has_lock) lock_.UnlockAborted();
    return;
  }
  if (!has_lock) {
    // An abort raises NCCL's flags for good; no other way to make the holder return is known.
    AbortHandle(handle);
    context_.Warn("rank %d: the communicator was aborted during an NCCL call that did not end%s",
                  rank_, revoked == kSuccess ? " when it was revoked" : "");
    return;
  }
  if (revoked == kSuccess && has_captured_) {
    // NCCL does not wait for graphs that hold a revoked communicator, unlike others, and the end of
    // the graphs would use freed memory.
    context_.Warn(
        "rank %d: the communicator was aborted and its memory is not freed: graphs may hold calls "
        "that were captured with it",
        rank_);
  } else if (revoked == kSuccess) {
    TryDetached([handle](const NcclApi& nccl) { nccl.CommDestroy(handle); }, kAbortMs);
  } else {
    AbortHandle(handle);
  }
  lock_.UnlockAborted();
}

}  // namespace onebit::nccl
