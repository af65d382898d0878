// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicator: a communicator of NCCL, created here or joined. One thread at a time uses it; any
// thread may abort it.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "plugins/transport_nccl/nccl_api.h"
#include "plugins/transport_nccl/nccl_context.h"
#include "wait/spin_lock.h"

namespace onebit::nccl {

// NCCL does not allow two calls on a communicator at a time, and ncclCommAbort frees it. So every
// use holds the lock (wait/spin_lock.h). An abort that finds the lock taken leaves the
// end to the holder. The holder of a non-blocking communicator returns soon; a blocking one may
// keep its holder inside NCCL forever. Then an abort revokes the communicator, which makes the
// holder return and frees nothing, and frees it once the holder has returned, unless a graph may
// hold calls of it or NCCL is still revoking. NCCL before 2.28.7 cannot revoke. Later versions
// raise their flags only for a moment, which a holder that is connecting may miss: the abort then
// frees the communicator under its holder, because NCCL offers no other way out.
class Communicator {
 public:
  Communicator(const Context& context, DeviceBinding binding, int rank, int ranks);
  // Destroys a communicator that was created here; waits for its work for at most
  // ONEBIT_NCCL_CLOSE_MS.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const DeviceBinding& binding() const { return binding_; }
  const NcclApi& api() const { return api_; }
  bool is_joined() const { return is_joined_; }
  // Valid for communicators created here; NCCL does not tell it for the application's.
  bool is_blocking() const { return is_blocking_; }
  // Requires the lock.
  CommHandle handle() const { return handle_.load(std::memory_order_relaxed); }

  // Creates a communicator of all ranks. `timeout_ms` also limits later calls that NCCL finishes in
  // the background.
  onebitResult_t Create(const UniqueId& id, uint64_t timeout_ms);
  // Joins a communicator of the application, which must be ready for use and keeps its owner.
  void Join(CommHandle handle, uint64_t timeout_ms);

  // Runs `body`, a function of the handle, while nobody else uses the communicator. If the
  // communicator was aborted or has failed, returns that error without running it.
  template <typename Body>
  onebitResult_t Use(Body body);
  // Ends a wait for NCCL early by returning anything but onebitSuccess.
  using Interruption = std::function<onebitResult_t()>;
  // Returns the outcome of a call of NCCL. Waits while NCCL works on it in the background, because
  // only then it has reached the stream. An error or interruption is logged and kept. Requires the
  // lock.
  onebitResult_t Finish(const char* what, int result,
                        const Interruption& interruption = NoInterruption);
  // Records if `stream` is being captured, before calls on it. Requires the lock.
  void NoteCapture(onebitStream_t stream);
  // Logs and keeps an error that ends the use of this communicator.
  onebitResult_t Fail(onebitResult_t result, const std::string& text);

  // Thread-safe.
  void Abort();
  bool is_aborted() const { return lock_.is_aborted(); }
  // Returns onebitAborted, the first error, or onebitSuccess.
  onebitResult_t state() const {
    return lock_.is_aborted() ? onebitAborted : failure_.load(std::memory_order_acquire);
  }
  // Returns the first error. Asks NCCL for one unless another thread uses the communicator, which
  // then learns of it by itself.
  onebitResult_t AsyncError(char* text, size_t capacity);

 private:
  static onebitResult_t NoInterruption() { return onebitSuccess; }
  // Waits until NCCL no longer works in the background and returns its result; kInProgress after a
  // time-out, an abort or an interruption.
  int Await(CommHandle handle, uint64_t timeout_ms,
            const Interruption& interruption = NoInterruption) const;
  void ReleaseLock();
  void Keep(onebitResult_t result, const std::string& text);
  void PollAsyncError();
  bool LockWithin(uint64_t timeout_ms);
  // False if the context is destroyed, with all work of it. Also true if the driver does not
  // answer.
  bool IsDeviceAlive() const;
  void EndAborted();
  void EndWhileHeld();
  // Returns NCCL's result, or kInProgress after a time-out. Requires ncclCommRevoke.
  int Revoke(CommHandle handle);
  void EndCleanly(CommHandle handle);
  void AbortHandle(CommHandle handle);
  void StopJoined(CommHandle handle);
  // CallDetached returns false if the call has not returned in time; it then goes on in its own
  // thread. It throws if there is no thread or no memory for one; TryDetached returns false then,
  // too.
  bool CallDetached(std::function<void(const NcclApi&)> call, uint64_t timeout_ms) const;
  bool TryDetached(std::function<void(const NcclApi&)> call, uint64_t timeout_ms) const;

  const Context& context_;
  const NcclApi& api_;
  const DeviceBinding binding_;
  const int rank_;
  const int ranks_;
  bool is_joined_ = false;
  bool is_blocking_ = true;  // written before handle_
  uint64_t timeout_ms_ = 0;
  SpinLock lock_;
  // Set once by the owner; read by an abort that does not wait for the lock. release, acquire: the
  // reader sees the communicator's other members.
  std::atomic<CommHandle> handle_{nullptr};
  std::atomic<bool> is_ending_{false};  // acq_rel: exactly one thread ends it
  // True if a graph may hold calls. Requires the lock.
  bool has_captured_ = false;
  // Stored with release after failure_text_, which mutex_ also guards, because two threads may fail
  // at a time.
  std::atomic<onebitResult_t> failure_{onebitSuccess};
  std::mutex mutex_;
  std::string failure_text_;
};

template <typename Body>
onebitResult_t Communicator::Use(Body body) {
  if (lock_.is_aborted()) return onebitAborted;
  lock_.Lock();
  onebitResult_t result = failure_.load(std::memory_order_acquire);
  {
    struct Unlocker {  // also when `body` throws
      Communicator& communicator;
      ~Unlocker() { communicator.ReleaseLock(); }
    } const unlocker{*this};
    if (result == onebitSuccess && !lock_.is_aborted()) {
      result = body(handle_.load(std::memory_order_relaxed));
    }
  }
  return lock_.is_aborted() ? onebitAborted : result;
}

}  // namespace onebit::nccl
