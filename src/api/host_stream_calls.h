// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams of the C API: live handles, and calls that run on them.
#pragma once

#include <atomic>

#include "api/handles.h"
#include "device/host_stream.h"

namespace onebit {

// Returns the stream of a handle. Never dereferences a handle that is not live.
Result<HostStream*> FindStream(onebitStream_t handle);
bool IsHostStream(onebitStream_t handle);

// Fails if calls are pending on a handle; `what` names its kind in the text.
Status CheckNonePending(const PendingCalls& pending, const char* what);

// Waits until the pending calls of a stopped communicator have failed in turn. Fails if calls are
// pending on a healthy communicator.
Status AwaitPending(onebitComm_t comm);

// A call with its handles. The compressor of `request` is that of the handle.
struct ApiCall {
  onebitComm_t comm = nullptr;
  onebitCompressor_t compressor = nullptr;  // may be null
  CallRequest request = {};

  // True if the call has ended when its function returns.
  bool is_blocking() const { return request.stream == nullptr && !request.location.is_device(); }
};

// Counts a call on a stream as pending; fails if the order of the calls would be undefined.
Status BeginPending(const ApiCall& call, HostStream* stream);
void EndPending(const ApiCall& call);
// Ends a pending call at the end of the scope, exceptions included.
class PendingCall {
 public:
  explicit PendingCall(const ApiCall& call) : call_(call) {}
  ~PendingCall() { EndPending(call_); }
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

 private:
  const ApiCall& call_;
};

// Fails if pending calls make the order of a blocking call undefined.
Status CheckNonePending(const ApiCall& call);

// Runs the body of a call on host memory, at once or in its turn on the stream. `body` takes the
// call and returns a Status; both are copied. *is_taken, unless null, is set if `body` has run or
// will run.
template <typename Body>
Status RunOnHost(const ApiCall& call, Body body, bool* is_taken = nullptr) {
  if (call.is_blocking()) {
    ONEBIT_TRY(CheckNonePending(call));
    if (is_taken != nullptr) *is_taken = true;
    return body(call);
  }
  ONEBIT_ASSIGN_OR_RETURN(HostStream* const stream, FindStream(call.request.stream));
  ONEBIT_TRY(BeginPending(call, stream));
  Status status = stream->Enqueue(HostStream::AfterFailure::kRun, [call, body] {
    const PendingCall pending(call);
    return body(call);
  });
  if (!status.ok()) {
    EndPending(call);
    return status;
  }
  if (is_taken != nullptr) *is_taken = true;
  return OkStatus();
}

}  // namespace onebit
