// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams of the C API: live handles, and calls that run on them.
#pragma once

#include <atomic>
#include <utility>

#include "api/handles.h"
#include "device/host_stream.h"

namespace onebit {

// Returns the stream of a handle. Never dereferences a handle that is not live.
Result<HostStream*> FindStream(onebitStream_t handle);
bool IsHostStream(onebitStream_t handle);

// Fails if calls are pending on a handle; `what` names its kind in the text.
Status CheckNonePending(const PendingWork& pending, const char* what);

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

// Counts a call on a stream as pending for as long as this object lives.
class PendingTicket {
 public:
  // `compressor` may be null. Fails if the order of the calls would be undefined.
  static Result<PendingTicket> Begin(onebitComm_t comm, onebitCompressor_t compressor,
                                     HostStream* stream);
  PendingTicket(PendingTicket&& other) noexcept
      : comm_(std::exchange(other.comm_, nullptr)), compressor_(other.compressor_) {}
  PendingTicket& operator=(PendingTicket&&) = delete;
  ~PendingTicket();

 private:
  PendingTicket(onebitComm_t comm, onebitCompressor_t compressor)
      : comm_(comm), compressor_(compressor) {}

  onebitComm_t comm_;  // null when moved from
  onebitCompressor_t compressor_;
};

// Fails if pending calls make the order of a blocking call undefined.
Status CheckNonePending(const ApiCall& call);

// Runs the body of a call on host memory in its turn on the stream.
template <typename Body>
Status EnqueueOnHost(ApiCall&& call, Body body) {
  ONEBIT_ASSIGN_OR_RETURN(HostStream* const stream, FindStream(call.request.stream));
  ONEBIT_ASSIGN_OR_RETURN(PendingTicket pending,
                          PendingTicket::Begin(call.comm, call.compressor, stream));
  return stream->Enqueue(HostStream::AfterFailure::kRun,
                         [pending = std::move(pending), call = std::move(call),
                          body = std::move(body)]() -> Status { return body(call); });
}

// Runs the body of a call on host memory, at once or in its turn on the stream. `body` takes the
// call and returns a Status.
template <typename Body>
Status RunOnHost(ApiCall&& call, Body body) {
  if (!call.is_blocking()) return EnqueueOnHost(std::move(call), std::move(body));
  ONEBIT_TRY(CheckNonePending(call));
  return body(call);
}

}  // namespace onebit
