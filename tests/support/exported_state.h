// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exports the states of handles. Throws if that fails.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "onebit/onebit.h"
#include "onebit/optim.h"
#include "onebit/sync.h"

namespace onebit::testing {

template <typename Handle>
std::vector<std::byte> ExportedBy(onebitResult_t (*call)(Handle, onebitStateKind_t, void*, size_t*),
                                  Handle handle, onebitStateKind_t kind) {
  size_t bytes = 0;
  std::vector<std::byte> blob;
  onebitResult_t result = call(handle, kind, nullptr, &bytes);
  if (result == onebitSuccess) {
    blob.resize(bytes);
    result = call(handle, kind, blob.data(), &bytes);
  }
  if (result != onebitSuccess) throw std::runtime_error(onebitGetLastError(nullptr));
  return blob;
}

inline std::vector<std::byte> StateOf(onebitCompressor_t compressor,
                                      onebitStateKind_t kind = onebitStateRank) {
  return ExportedBy(onebitCompressorExport, compressor, kind);
}
inline std::vector<std::byte> StateOf(onebitOptimizer_t optimizer,
                                      onebitStateKind_t kind = onebitStateRank) {
  return ExportedBy(onebitOptimizerExport, optimizer, kind);
}
inline std::vector<std::byte> StateOf(onebitSync_t sync, onebitStateKind_t kind = onebitStateRank) {
  return ExportedBy(onebitSyncExport, sync, kind);
}

}  // namespace onebit::testing
