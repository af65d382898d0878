// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call of the C API, from the check of its arguments to the thread or stream that runs it.
#pragma once

#include <optional>
#include <utility>

#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "exec/run_calls.h"

namespace onebit {

// Makes the call of an API function: checks it, locates its buffers, and runs it at once, on a
// stream, or at the end of the thread's group. The caller leaves type, op, location and compressor
// in `request` unset. The end of a group reports errors of its calls again.
onebitResult_t MakeCall(ApiCall&& call, onebitDataType_t datatype, onebitRedOp_t op) noexcept;

// Checks the arguments of a call against each other and its compressor, and completes its request.
Status CheckCall(ApiCall* call, onebitDataType_t datatype, onebitRedOp_t op);
// Takes the compressor of a call, if it has one, into use. Fails if it was used with another op, or
// if it holds what this rank shares with another one. For the moment when it is the call's turn,
// because earlier calls on the stream may still record their use.
Result<std::optional<CompressorUse>> BeginUse(const ApiCall& call);

// Runs a call that was checked, or enqueues it if its buffers are on a device. Always inlined, as
// RunCall is: both would be levels between every call and the network.
[[gnu::always_inline]] inline Result<CallOutcome> RunChecked(const ApiCall& call) {
  ONEBIT_ASSIGN_OR_RETURN(const auto use, BeginUse(call));
  return RunCall(call.comm->engine, call.request);
}

// Takes the communicator out of use after an error of its device, which would also break later
// calls: the other ranks must not wait for this one.
inline Status FailOnDeviceError(Comm& comm, Status status) {
  if (status.code() != Code::kUnhandledCudaError) return status;
  return comm.Fail(Error(status.code(), "rank {}: {}", comm.rank(), status.text()));
}
inline Status FailOnDeviceError(onebitComm_t comm, Status status) {
  return comm == nullptr ? status : FailOnDeviceError(*comm->comm, std::move(status));
}

// Makes the communicator ready for calls on memory of this device, if it is not. Host transports
// get to know their device by the first of these calls.
Status UseDeviceOf(onebitComm_t comm, const MemoryLocation& location);

// Runs the body of a call on device memory: it takes the call, enqueues it, and returns a Status.
template <typename Body>
Status RunOnDevice(const ApiCall& call, Body body) {
  ONEBIT_TRY(CheckNonePending(call));
  ONEBIT_TRY(FailOnDeviceError(call.comm, UseDeviceOf(call.comm, call.request.location)));
  return FailOnDeviceError(call.comm, body(call));
}

// Runs the body at once, or in its turn on the host stream.
template <typename Body>
Status RunInOrder(ApiCall&& call, Body body) {
  if (call.request.location.is_device()) return RunOnDevice(call, std::move(body));
  return RunOnHost(std::move(call), std::move(body));
}

}  // namespace onebit
