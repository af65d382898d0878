// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ends a communicator by a channel that closes at once.
#include "plugins/transport_mpi/unused_comm.h"

#include <memory>
#include <new>
#include <utility>

#include "plugins/transport_mpi/channel.h"
#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {

void EndUnused(MPI_Comm comm, int ranks, const Context& context) noexcept {
  MpiProcess& process = MpiProcess::Get();
  if (!process.IsUsableHere()) return process.SetBroken();
  try {
    auto channel = std::make_unique<Channel>(comm, Channel::ShapeOf(ranks, context.options()));
    if (channel->Start() != MPI_SUCCESS) process.SetBroken();
    channel->StartEnd();
    process.AddChannel();
    process.Park(std::move(channel));
    process.PollParked();
  } catch (const std::bad_alloc&) {
    process.SetBroken();
  }
}

}  // namespace onebit::mpi
