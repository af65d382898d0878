// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call of the C API, from its arguments to the place where it is made.
#pragma once

#include "api/device_proxy.h"
#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "collectives/run_calls.h"

namespace onebit {

// Makes the call of an API function: checks it, finds out where its buffers are, and runs it at
// once, on a stream, or at the end of the group that the thread is in. What `request` has of type,
// op, location and compressor follows from the rest. In a group the end of it returns the error,
// too.
onebitResult_t MakeCall(ApiCall call, onebitDataType_t datatype, onebitRedOp_t op) noexcept;

// A device that is broken makes no other call either: the other ranks must not wait for this one.
inline Status TellOfDevice(Comm& comm, Status status) {
  if (status.code() != Code::kUnhandledCudaError) return status;
  return comm.Fail(Error(status.code(), "rank {}: {}", comm.rank(), status.text()));
}
inline Status TellOfDevice(onebitComm_t comm, Status status) {
  return comm == nullptr ? status : TellOfDevice(*comm->comm, std::move(status));
}

// Runs the body at once, or in its turn on the stream of the host or of the device. `body` gets the
// call and returns a Status; both are copied. is_taken, if not null, tells whether `body` has run
// or will: an error may come after that, too.
template <typename Body>
Status RunInOrder(const ApiCall& call, Body body, bool* is_taken = nullptr) {
  if (!call.request.location.is_device()) return RunOnHost(call, body, is_taken);
  if (call.comm->engine.is_stream_ordered()) {  // it enqueues, and returns
    if (is_taken != nullptr) *is_taken = true;
    return TellOfDevice(call.comm, body(call));
  }
  const auto proxy = ProxyOf(call.comm, call.request.location);
  return TellOfDevice(call.comm,
                      proxy.ok() ? proxy.value()->Enqueue(call, body, is_taken) : proxy.status());
}

}  // namespace onebit
