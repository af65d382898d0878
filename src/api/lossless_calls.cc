// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/lossless_calls.h"

#include <utility>

#include "api/host_copies.h"
#include "base/group_depth.h"

namespace onebit {
namespace {

Status Run(const ApiCall& call) {
  ONEBIT_ASSIGN_OR_RETURN(const auto use, BeginUse(call));
  if (call.request.location.is_device()) {
    ONEBIT_TRY(CheckNotCaptured(call, "a call with a lossless compressor"));
  }
  ONEBIT_TRY(call.comm->comm->Enter());
  const CommUse in_use(*call.comm->comm);
  Compressor& state = call.compressor->planned.compressor;
  const Status status = RunLossless(*call.comm->comm, call.comm->engine,
                                    {.sendbuff = call.request.sendbuff,
                                     .recvbuff = call.request.recvbuff,
                                     .root = call.request.root,
                                     .stream = call.request.stream},
                                    state.config(), &*call.compressor->lossless);
  if (status.ok()) state.Commit();
  return status;
}

}  // namespace

Status SubmitLossless(ApiCall&& call) {
  if (IsInsideGroup()) {
    return Error(Code::kInvalidUsage,
                 "a call with a lossless compressor cannot be part of a group: make it after "
                 "onebitGroupEnd");
  }
  return RunInOrder(std::move(call), [](const ApiCall& made) { return Run(made); });
}

}  // namespace onebit
