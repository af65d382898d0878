// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A call of a compressor with error feedback in full precision, which pays what earlier calls owe.
#pragma once

#include "comm/comm.h"
#include "exec/engine.h"
#include "plan/planned_compressor.h"

namespace onebit {

struct PrimeRequest {
  const void* sendbuff = nullptr;
  void* recvbuff = nullptr;
  ReduceOp op = ReduceOp::kSum;  // if the collective has one
};

// Collective on `comm`, whose engine is `engine`; the calling thread has entered it. The compressor
// has error feedback, and its residuals and the buffers are in host memory. `obstacle`: why this
// rank cannot take part, which the others learn. After an error the residuals are as they were; if
// another rank committed the call, a rebind can roll this one forward.
Status Prime(Comm& comm, Engine& engine, const PrimeRequest& request, PlannedCompressor* compressor,
             const Status& obstacle = {});

}  // namespace onebit
