// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parts that states of compressors and of syncs share in the C API.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "api/handles.h"
#include "api/host_stream_calls.h"
#include "api/scoped_host_residency.h"
#include "base/log.h"
#include "base/state_blob.h"
#include "base/state_request.h"
#include "onebit/state.h"
#include "state/compressor_state.h"

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

// Loads a state by import(), which leaves the compressor as it was after an error. `of_compressor`
// is the compressor's part of the state. If that is from before the compressor would choose two
// levels, it takes the choice back.
template <typename Import>
Status ImportWithLevels(std::span<const std::byte> of_compressor, onebitCompressor_t compressor,
                        Import&& import) {
  PlannedCompressor& planned = compressor->planned;
  const onebitComm_t comm = compressor->id.comm();
  std::optional<Engine::OneLevel> one;
  if (comm != nullptr && WantsOneLevel(of_compressor, planned)) {
    ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));
    ONEBIT_TRY(comm->comm->Acquire());
    const CommUse use(*comm->comm);
    ONEBIT_ASSIGN_OR_RETURN(one, comm->engine.PrepareOneLevel(planned));
    one->Swap(&planned);
  }
  ScopedHostResidency stay(compressor);
  Status status = stay.Begin();
  if (status.ok()) {
    status = import();
    ONEBIT_TRY(stay.End());
  }
  if (one.has_value() && !status.ok()) one->Swap(&planned);
  if (one.has_value() && status.ok()) {
    planned.compressor.Keep(std::move(one->layout));
    Log(LogLevel::kInfo,
        "rank {}: compressor of tensor {}: the state has one level, so the compressor now uses one "
        "instead of two",
        comm->comm->rank(), planned.compressor.config().tensor_id);
  }
  return status;
}

}  // namespace onebit
