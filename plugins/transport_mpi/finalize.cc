// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ends MPI without hanging: waits for peers only for a bounded time.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "plugins/transport_mpi/channel.h"
#include "plugins/transport_mpi/mpi_process.h"
#include "wait/backoff.h"

namespace onebit::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// Peers say good-bye within the time they need to close their communicators.
constexpr uint64_t kEndNs = 2'000'000'000;
// MPI_Finalize of MPICH 4.0 over TCP may wait for a rank that has already ended.
constexpr seconds kFinalizeTime{5};
constexpr seconds kBarrierTime{1};

// MPICH 4.0 over TCP usually hangs in MPI_Finalize: a rank asks all others for an acknowledgement,
// and a rank that has its own no longer answers. If a rank has its host for itself, the launcher
// accepts an exit without MPI_Finalize, so we skip it there. If ranks share a host, the launcher
// would kill those that are a little later, but these use shared memory, which does not hang.
bool LeavesWithoutFinalize([[maybe_unused]] int world_size) {
#if defined(OPEN_MPI)
  return false;
#else
  const char* const neighbours = std::getenv("MPI_LOCALNRANKS");
  return world_size > 1 && neighbours != nullptr && std::atoi(neighbours) == 1;
#endif
}

// Gives the other ranks the chance to receive what they still expect from this one.
void AwaitWorld() {
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return;
  PollUntil(Clock::now() + kBarrierTime, [&request] {
    int is_done = 0;
    const int code = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS || is_done != 0;
  });
}

// relaxed: publishes nothing. Its reader is a thread that may outlive everything else.
std::atomic<bool> has_finalized{false};

// Ends the process after this time, unless MPI_Finalize has returned: later exit handlers are not
// limited. False if the system has no thread left.
bool LeavesAfter(seconds time, int status) {
  try {
    std::thread([time, status] {
      std::this_thread::sleep_for(time);
      if (!has_finalized.load(std::memory_order_relaxed)) _exit(status);
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

// MPI_Finalize deletes the attributes of MPI_COMM_SELF first, so this runs whoever calls it.
void MpiProcess::HookFinalize() {
  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, OnFinalize, &key, nullptr) != MPI_SUCCESS) {
    return;
  }
  MPI_Comm_set_attr(MPI_COMM_SELF, key, this);
}

int MpiProcess::OnFinalize(MPI_Comm /*comm*/, int /*key*/, void* value, void* /*extra*/) {
  static_cast<MpiProcess*>(value)->EndParked(kEndNs);
  return MPI_SUCCESS;
}

bool MpiProcess::EndParked(uint64_t timeout_ns) {
  return PollUntil(Clock::now() + nanoseconds(timeout_ns), [this] {
    PollParked();
    const std::lock_guard lock(mutex_);
    return parked_.empty();
  });
}

// Ends MPI only if it was started here. After an error, or with a communicator that was never
// destroyed, the others may never reach MPI_Finalize, so this rank does not wait for them there;
// the launcher then reports that it was not called.
void MpiProcess::AtExit(int status, void* argument) {
  auto* const process = static_cast<MpiProcess*>(argument);
  if (process->owner_pid_ != getpid()) return;
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized != 0 || !process->IsUsableHere()) return;
  if (process->is_broken_.load(std::memory_order_relaxed) ||
      process->open_channels_.load(std::memory_order_relaxed) != 0 || !process->EndParked(kEndNs)) {
    return;
  }
  if (LeavesWithoutFinalize(process->world_size_)) {
    AwaitWorld();
    return;
  }
  std::fflush(nullptr);                             // exit may not get to do it
  if (!LeavesAfter(kFinalizeTime, status)) return;  // no MPI_Finalize is better than a hang
  MPI_Finalize();
  has_finalized.store(true, std::memory_order_relaxed);
}

}  // namespace onebit::mpi
