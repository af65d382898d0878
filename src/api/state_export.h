// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parts that exports of compressors and of syncs share in the C API.
#pragma once

#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "base/state_blob.h"
#include "base/state_request.h"
#include "onebit/state.h"

namespace onebit {

inline Result<StateKind> StateKindOf(const onebitStateKind_t& kind) {
  static_assert(onebitStateRank == 0 && onebitStateGlobal == 1);
  ONEBIT_ASSIGN_OR_RETURN(const bool is_global, IsGlobalKind(kind));
  return is_global ? StateKind::kGlobal : StateKind::kRank;
}

// Runs body(Comm&, Engine&) with the communicator of `compressor` entered.
template <typename Body>
Status ExportGlobally(const onebitCompressor_s& compressor, Body&& body) {
  const onebitComm_t comm = compressor.id.comm();
  if (comm == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; rebind it to another "
                 "one with onebitCompressorRebind, or export onebitStateRank",
                 compressor.planned.compressor.config().tensor_id);
  }
  ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));
  ONEBIT_TRY(comm->comm->Enter());
  const CommUse use(*comm->comm);
  return body(*comm->comm, comm->engine);
}

}  // namespace onebit
