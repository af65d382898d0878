// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on device memory that the ranks make on the host: they agree there, or look at every
// element.
#pragma once

#include <algorithm>
#include <utility>

#include "api/call.h"
#include "base/aligned_buffer.h"

namespace onebit {

// A call that waits on the host cannot be part of a graph. `name` is the function's.
inline Status CheckNotCaptured(const ApiCall& call, const char* name) {
  const Compressor::Config& config = call.compressor->planned.compressor.config();
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing,
                          config.devices->IsCapturing(call.request.stream));
  if (!is_capturing) return OkStatus();
  return Error(Code::kInvalidUsage,
               "stream is being captured, but {} makes ranks agree on the host, "
               "which a graph cannot replay: call it outside the capture",
               name);
}

// Copies of the buffers of such a call.
class HostCopies {
 public:
  HostCopies(const ApiCall& call, const char* purpose)
      : call_(call),
        devices_(*call.compressor->planned.compressor.config().devices),
        bytes_(BytesOf(call.request, *call.comm->comm)),
        purpose_(purpose) {}

  // Waits for the work before the call on its stream.
  Status Begin() {
    ONEBIT_ASSIGN_OR_RETURN(const auto scope, EnterDevice());
    ONEBIT_ASSIGN_OR_RETURN(input_,
                            AlignedBuffer::Create(std::max<size_t>(bytes_.input, 1), purpose_));
    ONEBIT_ASSIGN_OR_RETURN(output_,
                            AlignedBuffer::Create(std::max<size_t>(bytes_.output, 1), purpose_));
    return Copy(input_.data(), call_.request.sendbuff, bytes_.input);
  }
  // Writes the output, unless the call failed with `status`.
  Status End(Status status) {
    if (!status.ok()) return status;
    ONEBIT_ASSIGN_OR_RETURN(const auto scope, EnterDevice());
    return Copy(call_.request.recvbuff, output_.data(), bytes_.output);
  }

  const void* input() const { return input_.data(); }
  void* output() { return output_.data(); }

 private:
  Result<DeviceScope> EnterDevice() const {
    return DeviceScope::Enter(devices_, call_.request.location.device);
  }
  Status Copy(void* to, const void* from, size_t bytes) const {
    ONEBIT_TRY(devices_.Copy(to, from, bytes, call_.request.stream));
    return devices_.Synchronize(call_.request.stream, call_.comm->comm->options().timeout_ms);
  }

  const ApiCall& call_;
  const Devices& devices_;
  const BufferBytes bytes_;
  const char* const purpose_;
  AlignedBuffer input_;
  AlignedBuffer output_;
};

}  // namespace onebit
