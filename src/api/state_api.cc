// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// States of compressors in the C API.
#include "api/scoped_host_residency.h"
#include "api/state_export.h"
#include "state/compressor_state.h"

using onebit::Code;
using onebit::CompressorUse;
using onebit::Error;
using onebit::Guard;
using onebit::OkStatus;
using onebit::StateKind;
using onebit::Status;

namespace {

Status Export(onebitCompressor_t compressor, const onebitStateKind_t& api_kind, void* buffer,
              size_t* bytes) {
  ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
  if (bytes == nullptr) return Error(Code::kInvalidArgument, "bytes is NULL");
  ONEBIT_ASSIGN_OR_RETURN(const StateKind kind, onebit::StateKindOf(api_kind));
  ONEBIT_TRY(onebit::CheckNonePending(compressor->pending, "compressor"));
  ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
  ONEBIT_TRY(onebit::CheckStateKind(compressor->planned, kind));
  const size_t needed = onebit::StateBytesOf(compressor->planned, kind);
  ONEBIT_TRY(onebit::CheckRoom("compressor", needed, buffer, bytes));
  if (buffer == nullptr) return OkStatus();
  auto* const blob = static_cast<std::byte*>(buffer);
  onebit::ScopedHostResidency stay(compressor);
  ONEBIT_TRY(stay.Begin());
  Status status;
  if (kind == StateKind::kGlobal) {
    status = onebit::ExportGlobally(*compressor, [&](onebit::Comm& comm, onebit::Engine& engine) {
      return onebit::ExportGlobalState(comm, engine, compressor->planned, blob);
    });
  } else {
    onebit::ExportRankState(compressor->planned, blob);
  }
  ONEBIT_TRY(stay.End());
  return status;
}

}  // namespace

onebitResult_t onebitCompressorExport(onebitCompressor_t compressor, onebitStateKind_t kind,
                                      void* buffer, size_t* bytes) {
  return Guard([&] { return Export(compressor, kind, buffer, bytes); });
}

onebitResult_t onebitCompressorImport(onebitCompressor_t compressor, const void* blob,
                                      size_t bytes) {
  return Guard([&]() -> Status {
    ONEBIT_TRY(onebit::CheckHandle(compressor, "compressor"));
    if (blob == nullptr) return Error(Code::kInvalidArgument, "blob is NULL");
    ONEBIT_TRY(onebit::CheckNonePending(compressor->pending, "compressor"));
    ONEBIT_ASSIGN_OR_RETURN(const CompressorUse use, CompressorUse::Begin(compressor));
    const std::span state(static_cast<const std::byte*>(blob), bytes);
    return onebit::ImportWithLevels(
        state, compressor, [&] { return onebit::ImportState(state, &compressor->planned); });
  });
}
