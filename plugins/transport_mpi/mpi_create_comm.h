// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Creates a communicator of some processes of MPI_COMM_WORLD.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "plugins/common/base_context.h"

namespace onebit::mpi {

// All these processes must call it at about the same time with the same `tag`, which nobody else
// uses. MPI has only a blocking call for this, so below MPI_THREAD_MULTIPLE the deadline and
// `is_aborted` are ignored. Logs the cause of an error.
onebitResult_t CreateComm(const plugin::BaseContext& context, std::vector<int> world_ranks, int tag,
                          uint64_t timeout_ms, const std::function<bool()>& is_aborted,
                          MPI_Comm* comm);

}  // namespace onebit::mpi
