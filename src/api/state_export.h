// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What exports of compressors and of syncs share in the C API.
#pragma once

#include <cstddef>
#include <cstring>

#include "api/handles.h"
#include "api/stream.h"
#include "base/state_blob.h"
#include "onebit/state.h"

namespace onebit {

// A caller in C may hand over any number, which C++ must not load as an enumeration.
inline Result<StateKind> StateKindOf(const onebitStateKind_t& kind) {
  int value;
  static_assert(sizeof(value) == sizeof(kind));
  std::memcpy(&value, &kind, sizeof(value));
  if (value == onebitStateRank) return StateKind::kRank;
  if (value == onebitStateGlobal) return StateKind::kGlobal;
  return Error(Code::kInvalidArgument,
               "state kind {} is unknown: onebitStateRank or onebitStateGlobal", value);
}

// Whether `*bytes` is room for `needed`, which it becomes. No buffer needs no room.
inline Status CheckRoom(const char* what, size_t needed, const void* buffer, size_t* bytes) {
  const size_t room = buffer == nullptr ? needed : *bytes;
  *bytes = needed;
  if (room >= needed) return OkStatus();
  return Error(Code::kInvalidArgument, "the state of the {} takes {} bytes, but *bytes is {}", what,
               needed, room);
}

// body(Comm&, Engine&), inside the communicator of `compressor`.
template <typename Body>
Status ExportGlobally(const onebitCompressor_s& compressor, Body&& body) {
  const onebitComm_t comm = compressor.id.comm();
  if (comm == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; take it over to another "
                 "one by onebitCompressorRebind, or export onebitStateRank",
                 compressor.planned.compressor.config().tensor_id);
  }
  ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));
  ONEBIT_TRY(comm->comm->Enter());
  const CommUse use(*comm->comm);
  return body(*comm->comm, comm->engine);
}

}  // namespace onebit
