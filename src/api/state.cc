// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// States of compressors in the C API.
#include <cstring>

#include "api/handles.h"
#include "api/stream.h"
#include "collectives/compressor_state.h"

using onebit::Code;
using onebit::CompressorUse;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::Result;
using onebit::StateKind;
using onebit::Status;

namespace {

// A caller in C may hand over any number, which C++ must not load as an enumeration.
Result<StateKind> KindOf(const onebitStateKind_t& kind) {
  int value;
  static_assert(sizeof(value) == sizeof(kind));
  std::memcpy(&value, &kind, sizeof(value));
  if (value == onebitStateRank) return StateKind::kRank;
  if (value == onebitStateGlobal) return StateKind::kGlobal;
  return Error(Code::kInvalidArgument,
               "state kind {} is unknown: onebitStateRank or onebitStateGlobal", value);
}

Status ExportGlobal(const onebitCompressor_s& compressor, std::byte* blob) {
  const onebitComm_t comm = compressor.id.comm();
  if (comm == nullptr) {
    return Error(Code::kDetached,
                 "compressor of tensor {}: its communicator was destroyed; take it over to another "
                 "one by onebitCompressorRebind, or export onebitStateRank",
                 compressor.planned.compressor.config().tensor_id);
  }
  ONEBIT_TRY(onebit::CheckNonePending(comm->pending, "communicator"));
  ONEBIT_TRY(comm->comm->Enter());
  const onebit::CommUse use(*comm->comm);
  return onebit::ExportGlobalState(*comm->comm, comm->engine, compressor.planned, blob);
}

Status Export(onebitCompressor_t compressor, const onebitStateKind_t& api_kind, void* buffer,
              size_t* bytes) {
  if (compressor == nullptr) return Error(Code::kInvalidArgument, "compressor is NULL");
  if (bytes == nullptr) return Error(Code::kInvalidArgument, "bytes is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const StateKind kind, KindOf(api_kind));
  ONEBIT_TRY(onebit::CheckNonePending(compressor->pending, "compressor"));
  ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
  ONEBIT_TRY(onebit::CheckStateKind(compressor->planned, kind));
  const size_t needed = onebit::StateBytesOf(compressor->planned, kind);
  const size_t room = buffer == nullptr ? needed : *bytes;
  *bytes = needed;
  if (room < needed) {
    return Error(Code::kInvalidArgument,
                 "compressor of tensor {}: its state takes {} bytes, but *bytes is {}",
                 compressor->planned.compressor.config().tensor_id, needed, room);
  }
  if (buffer == nullptr) return OkStatus();
  auto* const blob = static_cast<std::byte*>(buffer);
  if (kind == StateKind::kGlobal) return ExportGlobal(*compressor, blob);
  onebit::ExportRankState(compressor->planned, blob);
  return OkStatus();
}

}  // namespace

onebitResult_t onebitCompressorExport(onebitCompressor_t compressor, onebitStateKind_t kind,
                                      void* buffer, size_t* bytes) {
  return Guard([&] { return Export(compressor, kind, buffer, bytes); });
}

onebitResult_t onebitCompressorImport(onebitCompressor_t compressor, const void* blob,
                                      size_t bytes) {
  return Guard([&]() -> Status {
    if (compressor == nullptr) return Error(Code::kInvalidArgument, "compressor is NULL");
    if (blob == nullptr) return Error(Code::kInvalidArgument, "blob is NULL");
    ONEBIT_TRY(onebit::CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    return onebit::ImportState({static_cast<const std::byte*>(blob), bytes}, &compressor->planned);
  });
}
