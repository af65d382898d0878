// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Saves what a compressor remembers, and loads it: one rank's share exactly, or that of all ranks
// for any number of them. STATE.md has the bytes.
#pragma once

#include <cstddef>
#include <span>

#include "base/state_blob.h"
#include "collectives/engine.h"
#include "collectives/planned_compressor.h"
#include "comm/comm.h"

namespace onebit {

// Whether there is such a state of the compressor.
Status CheckStateKind(const PlannedCompressor& compressor, StateKind kind);

// Length of the compressor's state of this kind.
size_t StateBytesOf(const PlannedCompressor& compressor, StateKind kind);

// Local. `blob` has StateBytesOf(compressor, StateKind::kRank) bytes.
void ExportRankState(const PlannedCompressor& compressor, std::byte* blob);

// Elements that belong to a compressor's state, of its tensor, and are averaged with it.
struct StateCompanion {
  AgreedValues values;              // must be equal on all ranks
  const float* elements = nullptr;  // count of the compressor
  std::byte* mean = nullptr;        // receives their mean over the ranks, of any alignment
};

// Collective on `comm`, whose engine is `engine`, for a thread that has entered it: the same bytes
// on every rank. After an error the content of `blob`, and of the companion's mean, is undefined.
Status ExportGlobalState(Comm& comm, Engine& engine, const PlannedCompressor& compressor,
                         std::byte* blob, const StateCompanion* companion = nullptr);

// Local. After an error the compressor is what it was.
Status ImportState(std::span<const std::byte> blob, PlannedCompressor* compressor);

}  // namespace onebit
