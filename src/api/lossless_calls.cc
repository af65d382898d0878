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
  const auto run = [&](const void* input, void* output) {
    return RunLossless(*call.comm->comm, call.comm->engine,
                       {.sendbuff = input, .recvbuff = output, .root = call.request.root},
                       state.config(), &*call.compressor->lossless);
  };
  Status status;
  if (call.request.location.is_device()) {
    HostCopies copies(call, "the elements of a call with a lossless compressor");
    if (Status begun = CatchNoMemory([&] { return copies.Begin(); }); !begun.ok()) {
      return call.comm->comm->Fail(std::move(begun));  // the others may be waiting already
    }
    status = copies.End(run(copies.input(), copies.output()));
  } else {
    status = run(call.request.sendbuff, call.request.recvbuff);
  }
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
