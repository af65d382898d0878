// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of compressors in full precision, of the C API.
#include <algorithm>
#include <utility>

#include "api/call.h"
#include "api/scoped_host_residency.h"
#include "base/aligned_buffer.h"
#include "base/group_depth.h"
#include "base/guard.h"
#include "onebit/state.h"
#include "state/prime.h"

using onebit::AlignedBuffer;
using onebit::ApiCall;
using onebit::Code;
using onebit::Compressor;
using onebit::Devices;
using onebit::DeviceScope;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Result;
using onebit::ScopedHostResidency;
using onebit::Status;

namespace {

Status CheckPrime(const ApiCall& call) {
  const Compressor::Config& config = call.compressor->planned.compressor.config();
  if (onebit::IsInsideGroup()) {
    return Error(Code::kInvalidUsage,
                 "onebitCompressorPrime cannot be part of a group: call it after onebitGroupEnd");
  }
  if (call.comm == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; rebind it with "
                 "onebitCompressorRebind",
                 config.tensor_id);
  }
  if (!config.codec.has_feedback()) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} has no error feedback, so it owes nothing: make a call "
                 "without a compressor",
                 config.tensor_id);
  }
  if (config.collective == onebit::Collective::kSendRecv) {
    return Error(
        Code::kInvalidUsage,
        "compressor of tensor {} is for sends and receives between two ranks, but "
        "onebitCompressorPrime is a call of all ranks: call onebitCompressorReset on both instead",
        config.tensor_id);
  }
  return OkStatus();
}

// The buffers of a call on device memory, and the residuals, while the ranks make it on the host:
// they agree there, and such calls are rare.
class HostCopies {
 public:
  explicit HostCopies(const ApiCall& call)
      : call_(call),
        devices_(*call.compressor->planned.compressor.config().devices),
        bytes_(onebit::BytesOf(call.request, *call.comm->comm)),
        residuals_(call.compressor) {}

  // Waits for the work before the call on its stream.
  Status Begin() {
    constexpr const char* kUse = "the elements of a call in full precision";
    ONEBIT_ASSIGN_OR_RETURN(const auto scope, EnterDevice());
    ONEBIT_ASSIGN_OR_RETURN(input_, AlignedBuffer::Create(std::max<size_t>(bytes_.input, 1), kUse));
    ONEBIT_ASSIGN_OR_RETURN(output_,
                            AlignedBuffer::Create(std::max<size_t>(bytes_.output, 1), kUse));
    ONEBIT_TRY(Copy(input_.data(), call_.request.sendbuff, bytes_.input));
    return residuals_.Begin();
  }
  // After an error of the call the output stays undefined.
  Status End(Status status) {
    if (status.ok()) {
      ONEBIT_ASSIGN_OR_RETURN(const auto scope, EnterDevice());
      status = Copy(call_.request.recvbuff, output_.data(), bytes_.output);
    }
    Status returned = residuals_.End();
    return status.ok() ? std::move(returned) : std::move(status);
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
  const onebit::BufferBytes bytes_;
  ScopedHostResidency residuals_;
  AlignedBuffer input_;
  AlignedBuffer output_;
};

Status CheckNotCaptured(const ApiCall& call) {
  const Compressor::Config& config = call.compressor->planned.compressor.config();
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing,
                          config.devices->IsCapturing(call.request.stream));
  if (!is_capturing) return OkStatus();
  return Error(Code::kInvalidUsage,
               "stream is being captured, but onebitCompressorPrime makes ranks agree on the host, "
               "which a graph cannot replay: call it outside the capture");
}

Status Run(const ApiCall& call) {
  ONEBIT_ASSIGN_OR_RETURN(const auto use, onebit::BeginUse(call));
  if (call.request.location.is_device()) ONEBIT_TRY(CheckNotCaptured(call));
  ONEBIT_TRY(call.comm->comm->Enter());
  const onebit::CommUse in_use(*call.comm->comm);
  const auto prime = [&](const void* input, void* output, const Status& obstacle) {
    return onebit::Prime(*call.comm->comm, call.comm->engine,
                         {.sendbuff = input, .recvbuff = output, .op = call.request.op},
                         &call.compressor->planned, obstacle);
  };
  if (!call.request.location.is_device()) {
    return prime(call.request.sendbuff, call.request.recvbuff, OkStatus());
  }
  HostCopies copies(call);
  const Status obstacle = onebit::CatchNoMemory([&] { return copies.Begin(); });
  return copies.End(prime(copies.input(), copies.output(), obstacle));
}

Status Prime(onebitCompressor_t compressor, const void* sendbuff, void* recvbuff, onebitRedOp_t op,
             onebitStream_t stream) {
  ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
  const Compressor::Config& config = compressor->planned.compressor.config();
  ApiCall call{compressor->id.comm(),
               compressor,
               {.collective = config.collective,
                .sendbuff = sendbuff,
                .recvbuff = recvbuff,
                .count = config.count,
                .stream = stream}};
  ONEBIT_TRY(CheckPrime(call));
  ONEBIT_TRY(CheckCall(&call, onebit::ApiTypeOf(config.type), op));
  return onebit::RunInOrder(std::move(call), [](const ApiCall& made) { return Run(made); });
}

}  // namespace

onebitResult_t onebitCompressorPrime(onebitCompressor_t compressor, const void* sendbuff,
                                     void* recvbuff, onebitRedOp_t op, onebitStream_t stream) {
  return Guard([&] { return Prime(compressor, sendbuff, recvbuff, op, stream); });
}
