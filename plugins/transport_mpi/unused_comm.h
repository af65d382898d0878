// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The end of a communicator of ours that no endpoint uses.
#pragma once

#include <mpi.h>

#include "plugins/transport_mpi/mpi_context.h"

namespace onebit::mpi {

// Takes `comm` over. Peers may have endpoints on it that send already, so it is ended as theirs
// are, by a channel that is parked; without memory for one it is left to MPI.
void EndUnused(MPI_Comm comm, int ranks, const Context& context) noexcept;

}  // namespace onebit::mpi
