// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls MPI_Comm_create_group on a thread that can be abandoned.
#include "plugins/transport_mpi/mpi_create_comm.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "plugins/transport_mpi/errors_return.h"
#include "plugins/transport_mpi/mpi_process.h"

namespace onebit::mpi {
namespace {

using Clock = std::chrono::steady_clock;

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
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  int code = MPI_SUCCESS;
  MPI_Comm comm = MPI_COMM_NULL;
};

// False if the system has no thread left. A communicator made after the time-out is never freed,
// because peers may send on it.
bool StartThread(const std::shared_ptr<Work>& work, std::vector<int> world_ranks, int tag) {
  try {
    std::thread([work, ranks = std::move(world_ranks), tag] {
      MPI_Comm created = MPI_COMM_NULL;
      const int code = Create(ranks, tag, &created);
      const std::lock_guard lock(work->mutex);
      work->code = code;
      work->comm = created;
      work->is_done = true;
      work->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

onebitResult_t CreateComm(const plugin::BaseContext& context, std::vector<int> world_ranks, int tag,
                          uint64_t timeout_ns, const std::function<bool()>& is_aborted,
                          MPI_Comm* comm) {
  const auto work = std::make_shared<Work>();
  if (!MpiProcess::Get().is_multiple()) {
    work->code = Create(world_ranks, tag, &work->comm);
  } else {
    const auto deadline = Clock::now() + std::chrono::nanoseconds(timeout_ns);
    if (!StartThread(work, std::move(world_ranks), tag)) {
      context.Warn("the system gives no thread for MPI_Comm_create_group");
      return onebitSystemError;
    }
    std::unique_lock lock(work->mutex);
    while (!work->is_done) {
      work->changed.wait_for(lock, std::chrono::milliseconds(10));
      if (work->is_done) break;
      const bool is_late = Clock::now() >= deadline;
      if (!is_late && !is_aborted()) continue;
      MpiProcess::Get().SetBroken();
      if (is_late) context.Warn("MPI_Comm_create_group: not all ranks came in time");
      return is_late ? onebitTimeout : onebitAborted;
    }
  }
  if (work->code != MPI_SUCCESS) {
    context.Warn("MPI_Comm_create_group failed: %s", ErrorText(work->code).c_str());
    return onebitSystemError;
  }
  *comm = work->comm;
  return onebitSuccess;
}

}  // namespace onebit::mpi
