// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams of the C API: which handles are alive, and calls that are made on one.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/handles.h"
#include "device/host_stream.h"

namespace onebit {

// Returns the stream of a handle; never dereferences a handle that is not alive.
Result<HostStream*> FindStream(onebitStream_t handle);
bool IsHostStream(onebitStream_t handle);

// Says why a handle with pending calls cannot be used otherwise; `what` names its kind.
Status CheckNonePending(const PendingCalls& pending, const char* what);

// Waits until the pending calls of a stopped communicator have failed, each in its turn. An error
// if calls are pending and the communicator is healthy.
Status AwaitPending(onebitComm_t comm);

// A call with the handles that it works on; the compressor of `request` is that of the handle.
struct ApiCall {
  onebitComm_t comm = nullptr;
  onebitCompressor_t compressor = nullptr;  // null: none
  CallRequest request = {};

  // True if the call is over when its function returns.
  bool is_blocking() const { return request.stream == nullptr && !request.location.is_device(); }
};

// Counts a call on a stream as pending, or says why its order would be undefined. Returns a ticket:
// the number of calls of the communicator before it. Those on device memory may be on another
// thread; AwaitTicket waits for them, or until the communicator has failed, since then none
// begins.
Result<uint64_t> BeginPending(const ApiCall& call, HostStream* stream);
void AwaitTicket(onebitComm_t comm, uint64_t turn);
void EndPending(const ApiCall& call);
// Undoes the newest BeginPending, whose call was not queued. For the thread that began it, before
// it begins another one.
void CancelPending(const ApiCall& call);
// Ends a pending call at the end of the scope, even if an exception leaves it.
class PendingCall {
 public:
  explicit PendingCall(const ApiCall& call) : call_(call) {}
  ~PendingCall() { EndPending(call_); }
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

 private:
  const ApiCall& call_;
};

// Fails if pending calls leave the order of a blocking call undefined.
Status CheckNonePending(const ApiCall& call);

// Runs the body of a call on host memory: at once, or on the stream in its turn. `body` gets the
// call and returns a Status; both are copied. is_taken, if not null, tells whether it has run or
// will.
template <typename Body>
Status RunOnHost(const ApiCall& call, Body body, bool* is_taken = nullptr) {
  if (call.is_blocking()) {
    ONEBIT_TRY(CheckNonePending(call));
    if (is_taken != nullptr) *is_taken = true;
    return body(call);
  }
  ONEBIT_ASSIGN_OR_RETURN(HostStream* const stream, FindStream(call.request.stream));
  ONEBIT_TRY(BeginPending(call, stream).status());
  Status status = stream->Enqueue(HostStream::AfterFailure::kRun, [call, body] {
    const PendingCall pending(call);
    return body(call);
  });
  if (!status.ok()) {
    CancelPending(call);
    return status;
  }
  if (is_taken != nullptr) *is_taken = true;
  return OkStatus();
}

}  // namespace onebit
