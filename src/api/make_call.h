// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes a call where its buffers are.
#pragma once

#include "api/device_proxy.h"
#include "api/host_stream_calls.h"

namespace onebit {

// A device that is broken makes no other call either: the other ranks must not wait for this one.
inline Status TellOfDevice(Comm& comm, Status status) {
  if (status.code() != Code::kUnhandledCudaError) return status;
  return comm.Fail(Error(status.code(), "rank {}: {}", comm.rank(), status.text()));
}
inline Status TellOfDevice(onebitComm_t comm, Status status) {
  return comm == nullptr ? status : TellOfDevice(*comm->comm, std::move(status));
}

// Whether another thread makes the call, while the stream of the caller waits for it.
inline bool UsesProxy(const CallTarget& target) {
  return target.location.is_device() && !target.comm->engine.is_stream_ordered();
}

// Takes the memory for such a call, which comes before its MakeCall.
inline Status PrepareOnProxy(const CallTarget& target, const Engine::Request& request) {
  const auto proxy = ProxyOf(target.comm, target.location);
  return TellOfDevice(target.comm,
                      proxy.ok() ? proxy.value()->Prepare(target.comm, target.stream, {&request, 1})
                                 : proxy.status());
}

// At once, or in its turn on the stream of the host or of the device. `body` returns a Status and
// is copied. is_taken, if not null, tells whether `body` has run or will: an error may come after
// that, too.
template <typename Body>
Status MakeCall(const CallTarget& target, Body body, bool* is_taken = nullptr) {
  if (!target.location.is_device()) return MakeHostCall(target, body, is_taken);
  if (target.comm->engine.is_stream_ordered()) {  // it enqueues, and returns
    if (is_taken != nullptr) *is_taken = true;
    return TellOfDevice(target.comm, body());
  }
  const auto proxy = ProxyOf(target.comm, target.location);
  return TellOfDevice(target.comm,
                      proxy.ok() ? proxy.value()->Enqueue(target, body, is_taken) : proxy.status());
}

}  // namespace onebit
