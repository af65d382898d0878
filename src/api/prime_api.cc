// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of compressors in full precision, of the C API.
#include <utility>

#include "api/call.h"
#include "api/host_copies.h"
#include "api/scoped_host_residency.h"
#include "base/group_depth.h"
#include "base/guard.h"
#include "onebit/state.h"
#include "state/prime.h"

using onebit::ApiCall;
using onebit::Code;
using onebit::Compressor;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
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

Status Run(const ApiCall& call) {
  ONEBIT_ASSIGN_OR_RETURN(const auto use, onebit::BeginUse(call));
  if (call.request.location.is_device()) {
    ONEBIT_TRY(onebit::CheckNotCaptured(call, "onebitCompressorPrime"));
  }
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
  onebit::HostCopies copies(call, "the elements of a call in full precision");
  ScopedHostResidency residuals(call.compressor);
  const Status obstacle = onebit::CatchNoMemory([&] {
    ONEBIT_TRY(copies.Begin());
    return residuals.Begin();
  });
  Status status = copies.End(prime(copies.input(), copies.output(), obstacle));
  Status returned = residuals.End();
  return status.ok() ? std::move(returned) : std::move(status);
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
