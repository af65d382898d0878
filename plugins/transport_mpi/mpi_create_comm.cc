// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls MPI_Comm_create_group on a thread that can be abandoned.
#include "plugins/transport_mpi/mpi_create_comm.h"

#include <memory>
#include <system_error>
#include <utility>

#include "plugins/common/run_detached.h"
#include "plugins/transport_mpi/errors_return.h"
#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {
namespace {

int Create(const std::vector<int>& world_ranks, int tag, MPI_Comm* comm) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  const ErrorsReturn errors_return(MPI_COMM_WORLD);
  int code = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group);
  MPI_Group_free(&world);
  if (code != MPI_SUCCESS) return code;
  code = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, comm);
  MPI_Group_free(&group);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  return code;
}

// Shared by a thread inside MPI and the thread that waits for it, as long as that does.
struct Work {
  int code = MPI_SUCCESS;
  MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace

onebitResult_t CreateComm(const plugin::BaseContext& context, std::vector<int> world_ranks, int tag,
                          uint64_t timeout_ms, const std::function<bool()>& is_aborted,
                          MPI_Comm* comm) {
  const auto work = std::make_shared<Work>();
  const auto create = [work, ranks = std::move(world_ranks), tag] {
    work->code = Create(ranks, tag, &work->comm);
  };
  bool is_done = true;
  if (!MpiProcess::Get().is_multiple()) {
    create();
  } else {
    try {
      // A communicator that is made after the time-out is never freed, because peers may send on
      // it.
      is_done = plugin::RunDetached(
          create, [] {}, timeout_ms, is_aborted);
    } catch (const std::system_error&) {
      context.Warn("no thread for MPI_Comm_create_group could be started");
      return onebitSystemError;
    }
  }
  if (!is_done) {
    MpiProcess::Get().SetBroken();
    if (is_aborted()) return onebitAborted;
    context.Warn("MPI_Comm_create_group: not all ranks called it in time");
    return onebitTimeout;
  }
  if (work->code != MPI_SUCCESS) {
    context.Warn("MPI_Comm_create_group failed: %s", ErrorText(work->code).c_str());
    return onebitSystemError;
  }
  *comm = work->comm;
  return onebitSuccess;
}

}  // namespace onebit::mpi
