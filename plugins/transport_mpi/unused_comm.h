// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ends a private communicator that no endpoint uses.
#pragma once

#include <mpi.h>

#include "plugins/transport_mpi/mpi_context.h"

namespace onebit::mpi {

// Takes ownership of `comm`. Peers may already send on it from their endpoints, so it is ended as
// theirs are, by a parked channel; without memory for one it is leaked.
void EndUnused(MPI_Comm comm, int ranks, const Context& context) noexcept;

}  // namespace onebit::mpi
