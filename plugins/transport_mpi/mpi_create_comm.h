// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A communicator of some processes of MPI_COMM_WORLD.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "plugins/common/base_context.h"

namespace onebit::mpi {

// All these processes call it at about the same time; `tag` is theirs. MPI has no such call that
// does not block: below MPI_THREAD_MULTIPLE the deadline and `is_aborted` are not looked at. Logs
// why not.
onebitResult_t CreateComm(const plugin::BaseContext& context, std::vector<int> world_ranks, int tag,
                          uint64_t timeout_ns, const std::function<bool()>& is_aborted,
                          MPI_Comm* comm);

}  // namespace onebit::mpi
