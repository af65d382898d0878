// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicator: one of NCCL, made here or joined, that is used by one thread at a time and aborted
// by any.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "plugins/common/spin_lock.h"
#include "plugins/transport_nccl/nccl_api.h"
#include "plugins/transport_nccl/nccl_context.h"

namespace onebit::nccl {

// NCCL allows no two calls on a communicator at a time, and ncclCommAbort frees it. So every use
// holds the turn (plugins/common/spin_lock.h). An abort that finds it taken leaves the end to the
// holder. Of a communicator that does not block the holder comes back soon; a blocking one may keep
// it in NCCL for ever. Then an abort revokes the communicator, which throws the holder out and
// frees nothing, and frees it when the holder is out, unless a graph may hold calls of it or NCCL
// is still revoking. Before 2.28.7 NCCL cannot revoke, and from then on it raises its flags only
// for a moment, which a holder that is connecting may miss: there the abort frees it under its
// holder, the only way out that NCCL has.
class Communicator {
 public:
  Communicator(const Context& context, DeviceBinding binding, int rank, int ranks);
  // Ends a communicator that was made here; waits for its work as long as ONEBIT_NCCL_CLOSE_MS
  // says.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const DeviceBinding& binding() const { return binding_; }
  const NcclApi& api() const { return api_; }
  bool is_joined() const { return is_joined_; }
  // Of one that was made here; what an application's does NCCL does not tell.
  bool is_blocking() const { return is_blocking_; }
  // For the holder of the turn.
  CommHandle handle() const { return handle_.load(std::memory_order_relaxed); }

  // Makes one of all ranks. Later calls that NCCL finishes in the background have as long, too.
  onebitResult_t Create(const UniqueId& id, uint64_t timeout_ms);
  // Takes one of the application, which is ready to be used and stays its owner's.
  void Join(CommHandle handle, uint64_t timeout_ms);

  // Runs `body`, a function of the handle, while nobody else uses the communicator.
  // onebitAborted, or what failed before: it was not run.
  template <typename Body>
  onebitResult_t Use(Body body);
  // What ends a wait for NCCL before its time: anything but onebitSuccess.
  using Interruption = std::function<onebitResult_t()>;
  // Holder of the turn: what came of a call of NCCL. Waits while NCCL works on it in the
  // background: only then it has reached the stream. An error is logged and kept, an interruption,
  // too.
  onebitResult_t Finish(const char* what, int result,
                        const Interruption& interruption = NoInterruption);
  // Holder of the turn, before calls on `stream`, of whose capture it takes a note.
  void NoteCapture(onebitStream_t stream);
  // An error that ends the use of this communicator. Logs it and keeps it.
  onebitResult_t Fail(onebitResult_t result, const std::string& text);

  // Any thread.
  void Abort();
  bool is_aborted() const { return turn_.is_aborted(); }
  // onebitAborted, the first error, or onebitSuccess.
  onebitResult_t state() const {
    return turn_.is_aborted() ? onebitAborted : failure_.load(std::memory_order_acquire);
  }
  // The first error. Looks for one of NCCL's unless another thread uses the communicator, which
  // then learns of it by itself.
  onebitResult_t AsyncError(char* text, size_t capacity);

 private:
  static onebitResult_t NoInterruption() { return onebitSuccess; }
  // Until NCCL is no longer at work in the background: its result; kInProgress if the time is over,
  // this is aborted or there is an interruption.
  int Await(CommHandle handle, uint64_t timeout_ms,
            const Interruption& interruption = NoInterruption) const;
  void GiveLock();
  void Keep(onebitResult_t result, const std::string& text);
  void LookForError();
  bool TakeTurnWithin(uint64_t timeout_ms);
  void EndAborted();
  void EndUnderHolder();
  // NCCL's result; kInProgress: it has not done it in time. It must have ncclCommRevoke.
  int Revoke(CommHandle handle);
  void EndInOrder(CommHandle handle);
  void AbortHandle(CommHandle handle);
  void StopJoined(CommHandle handle);
  // False: it has not returned within that time, and goes on in a thread of its own. Throws where
  // there is no thread or no memory for one; TryBeside returns false then, too.
  bool CallBeside(std::function<void(const NcclApi&)> call, uint64_t timeout_ms) const;
  bool TryBeside(std::function<void(const NcclApi&)> call, uint64_t timeout_ms) const;

  const Context& context_;
  const NcclApi& api_;
  const DeviceBinding binding_;
  const int rank_;
  const int ranks_;
  bool is_joined_ = false;
  bool is_blocking_ = true;  // written before handle_
  uint64_t timeout_ms_ = 0;
  plugin::SpinLock turn_;
  // Set once by the owner; read by an abort that does not wait for the turn. release, acquire: what
  // made it is visible.
  std::atomic<CommHandle> handle_{nullptr};
  std::atomic<bool> is_ending_{false};  // acq_rel: exactly one ends it
  // Whether a graph may hold calls. For the holder of the turn.
  bool has_captured_ = false;
  // release after failure_text_, which mutex_ guards, too: two may fail at a time.
  std::atomic<onebitResult_t> failure_{onebitSuccess};
  std::mutex mutex_;
  std::string failure_text_;
};

template <typename Body>
onebitResult_t Communicator::Use(Body body) {
  if (turn_.is_aborted()) return onebitAborted;
  turn_.Take();
  onebitResult_t result = failure_.load(std::memory_order_acquire);
  {
    struct Giving {  // also where `body` throws
      Communicator& communicator;
      ~Giving() { communicator.GiveLock(); }
    } const giving{*this};
    if (result == onebitSuccess && !turn_.is_aborted()) {
      result = body(handle_.load(std::memory_order_relaxed));
    }
  }
  return turn_.is_aborted() ? onebitAborted : result;
}

}  // namespace onebit::nccl
