// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exports and imports a compressor's residuals: those of one rank exactly, or those of all ranks
// for any number of them. STATE.md specifies the bytes.
#pragma once

#include <cstddef>
#include <span>

#include "base/state_blob.h"
#include "comm/comm.h"
#include "exec/engine.h"
#include "plan/planned_compressor.h"

namespace onebit {

// Fails if the compressor has no state of this kind.
Status CheckStateKind(const PlannedCompressor& compressor, StateKind kind);

// Bytes of the compressor's state of this kind.
size_t StateBytesOf(const PlannedCompressor& compressor, StateKind kind);

// Local. `blob` has StateBytesOf(compressor, StateKind::kRank) bytes.
void ExportRankState(const PlannedCompressor& compressor, std::byte* blob);

// Elements outside a compressor, one per element of its tensor, that are exported and averaged with
// its residuals.
struct StateCompanion {
  AgreedValues values;              // must be equal on all ranks
  const float* elements = nullptr;  // count of the compressor
  std::byte* mean = nullptr;        // receives their mean over the ranks, of any alignment
};

// Collective on `comm`, whose engine is `engine`; the calling thread has entered it. All ranks get
// the same bytes. After an error the contents of `blob`, and of the companion's mean, are
// undefined.
Status ExportGlobalState(Comm& comm, Engine& engine, const PlannedCompressor& compressor,
                         std::byte* blob, const StateCompanion* companion = nullptr);

// True if the state is of this rank with one level, and the compressor fits it but for the two
// levels that it chose by itself and has not used: with one level (Engine::OneLevel) it can import
// the state.
bool WantsOneLevel(std::span<const std::byte> blob, const PlannedCompressor& compressor);

// Local. An error leaves the compressor unchanged.
Status ImportState(std::span<const std::byte> blob, PlannedCompressor* compressor);

}  // namespace onebit
