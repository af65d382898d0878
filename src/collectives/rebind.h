// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Takes a compressor over to another communicator, of some of the ranks of its own.
#pragma once

#include "collectives/engine.h"
#include "collectives/planned_compressor.h"
#include "comm/comm.h"

namespace onebit {

// Collective on `comm`, whose engine is `engine`, for a thread that has entered it. Returns a rank
// that has the results of the last call; -1: none has. On an error the compressor is what it was;
// `obstacle` is an error of this rank that keeps it from taking part, which it tells the others.
Result<int> Rebind(Comm& comm, Engine& engine, PlannedCompressor* compressor,
                   const Status& obstacle);

}  // namespace onebit
