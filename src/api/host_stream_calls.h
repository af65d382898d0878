// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams of the C API: which handles are alive, and calls that are made on one.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/handles.h"
#include "device/host_stream.h"

namespace onebit {

// The stream of a handle, without looking into what is no handle of ours.
Result<HostStream*> FindStream(onebitStream_t handle);
bool IsHostStream(onebitStream_t handle);

// Says why a handle with pending calls cannot be used otherwise; `what` names its kind.
Status CheckNonePending(const PendingCalls& pending, const char* what);

// Waits for the calls that are pending with a communicator that was stopped, as each fails when it
// is its turn. With one in order they are an error.
Status AwaitPending(onebitComm_t comm);

// What a call works on. compressor null: none.
struct CallTarget {
  onebitComm_t comm = nullptr;
  onebitCompressor_t compressor = nullptr;
  onebitStream_t stream = nullptr;
  MemoryLocation location =
      {};  // on a device `stream` is one of CUDA's, null being the default one

  bool is_blocking() const { return stream == nullptr && !location.is_device(); }
};

// Counts a call on a stream for what it works on, or says why its order would be undefined. Returns
// the calls of the communicator before it, of which those on the memory of a device may be with
// another thread: AwaitTicket waits for them, unless the communicator has failed, and then none
// begins.
Result<uint64_t> BeginPending(const CallTarget& target, HostStream* stream);
void AwaitTicket(onebitComm_t comm, uint64_t turn);
void EndPending(const CallTarget& target);
// Takes back the newest call that has begun, because it was not queued. By the thread that began
// it, before it begins another one.
void CancelPending(const CallTarget& target);
// Ends a pending call with the scope, whatever happens in it.
class PendingCall {
 public:
  explicit PendingCall(const CallTarget& target) : target_(target) {}
  ~PendingCall() { EndPending(target_); }
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

 private:
  const CallTarget& target_;
};

// Whether a call that blocks has a place in the order of calls.
Status CheckNonePending(const CallTarget& target);

// Makes the call on host memory: at once, or on the stream in its turn. `body` returns a Status and
// is copied. is_taken, if not null, tells whether it has run or will.
template <typename Body>
Status MakeHostCall(const CallTarget& target, Body body, bool* is_taken = nullptr) {
  if (target.is_blocking()) {
    ONEBIT_TRY(CheckNonePending(target));
    if (is_taken != nullptr) *is_taken = true;
    return body();
  }
  ONEBIT_ASSIGN_OR_RETURN(HostStream* const stream, FindStream(target.stream));
  ONEBIT_TRY(BeginPending(target, stream).status());
  Status status = stream->Enqueue(HostStream::AfterFailure::kRun, [target, body] {
    const PendingCall call(target);
    return body();
  });
  if (!status.ok()) {
    CancelPending(target);
    return status;
  }
  if (is_taken != nullptr) *is_taken = true;
  return OkStatus();
}

}  // namespace onebit
