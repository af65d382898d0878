// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of compressors in full precision, of the C API.
#include "api/call.h"
#include "base/group_depth.h"
#include "collectives/prime.h"
#include "onebit/state.h"

using onebit::ApiCall;
using onebit::Code;
using onebit::Compressor;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
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
  if (!onebit::HasFeedback(config.kind)) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} has no error feedback, so it owes nothing: make a call "
                 "without compressor",
                 config.tensor_id);
  }
  if (config.collective == onebit::Collective::kSendRecv) {
    return Error(Code::kInvalidUsage,
                 "compressor of tensor {} is for sends and receives, which two ranks make, and "
                 "onebitCompressorPrime is made by all: reset it on both sides",
                 config.tensor_id);
  }
  if (config.location.is_device()) {
    return Error(
        Code::kInvalidUsage,
        "compressor of tensor {} is for {}, but onebitCompressorPrime works on host memory "
        "only",
        config.tensor_id, Describe(config.location));
  }
  return OkStatus();
}

Status Run(const ApiCall& call) {
  ONEBIT_ASSIGN_OR_RETURN(const auto use, onebit::BeginUse(call.compressor));
  ONEBIT_TRY(CheckRecordedUse(call));
  ONEBIT_TRY(call.comm->comm->Enter());
  const onebit::CommUse in_use(*call.comm->comm);
  return onebit::Prime(
      *call.comm->comm, call.comm->engine,
      {.sendbuff = call.request.sendbuff, .recvbuff = call.request.recvbuff, .op = call.request.op},
      &call.compressor->planned);
}

Status Prime(onebitCompressor_t compressor, const void* sendbuff, void* recvbuff, onebitRedOp_t op,
             onebitStream_t stream) {
  if (compressor == nullptr) return Error(Code::kInvalidArgument, "compressor is NULL");
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
  return onebit::RunInOrder(call, [](const ApiCall& made) { return Run(made); });
}

}  // namespace

onebitResult_t onebitCompressorPrime(onebitCompressor_t compressor, const void* sendbuff,
                                     void* recvbuff, onebitRedOp_t op, onebitStream_t stream) {
  return Guard([&] { return Prime(compressor, sendbuff, recvbuff, op, stream); });
}
