// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rebinds a compressor to another communicator, whose ranks are among those of its own.
#pragma once

#include "comm/comm.h"
#include "exec/engine.h"
#include "plan/planned_compressor.h"

namespace onebit {

// Collective on `comm`, whose engine is `engine`; the calling thread has entered it. Returns a rank
// that has the results of the last call, or -1 if none has. After an error the compressor is
// unchanged. `obstacle` is an error that keeps this rank from taking part; it is reported to the
// other ranks.
Result<int> Rebind(Comm& comm, Engine& engine, PlannedCompressor* compressor,
                   const Status& obstacle);

}  // namespace onebit
