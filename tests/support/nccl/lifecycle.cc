// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The creation and end of communicators.
#include "tests/support/nccl/lifecycle.h"

#include <atomic>
#include <climits>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/support/nccl/clique_hub.h"
#include "tests/support/nccl/cuda_calls.h"
#include "tests/support/nccl/operations.h"
#include "tests/support/nccl/remote_clique.h"
#include "tests/support/nccl/stand_in_comm.h"
#include "tests/support/nccl/unique_ids.h"

namespace onebit::testing::nccl {
namespace {

std::atomic<bool> is_revoke_held{false};

ncclResult_t Refuse(ncclResult_t result, const char* text) {
  SetLastError(text);
  return result;
}

// Called when all ranks have joined. Requires the clique's mutex.
ncclResult_t CheckDevices(const Clique& clique) {
  for (const Member& one : clique.members) {
    int with_same = 0;
    for (const Member& other : clique.members) with_same += one.device == other.device ? 1 : 0;
    if (with_same > 1) return Refuse(ncclInvalidUsage, "Duplicate GPU detected");
  }
  return ncclSuccess;
}

#if ONEBIT_TEST_NCCL_VERSION >= 21400
// The environment overrides the caller's configuration.
bool IsBlocking(bool was_asked_for) {
  const char* const told = std::getenv("NCCL_COMM_BLOCKING");
  if (told == nullptr || *told == '\0') return was_asked_for;
  const long long number = std::strtoll(told, nullptr, 0);
  return number == 0 || number == 1 ? number == 1 : was_asked_for;
}
#else
bool IsBlocking(bool) { return true; }
#endif

// Joins the clique of the id, here or in the process that made it.
ncclResult_t Join(Comm* comm, int ranks) {
  IdContent id;
  if (!ReadId(comm->id, &id)) return Refuse(ncclInvalidArgument, "the unique id is wrong");
  if (id.hub != HubName()) {
    std::string error;
    comm->remote = RemoteClique::Join(id, ranks, comm->rank, comm->device, &error);
    if (comm->remote == nullptr) return Refuse(ncclSystemError, error.c_str());
    comm->clique = comm->remote->mirror();
    return ncclSuccess;
  }
  comm->clique = CliqueOf(id.number, ranks);
  if (comm->clique == nullptr) return Refuse(ncclInvalidArgument, "the unique id is wrong");
  const std::lock_guard lock(comm->clique->mutex);
  return comm->clique->Enter(comm->rank, comm->device)
             ? ncclSuccess
             : Refuse(ncclInvalidUsage, "the rank has come already");
}

}  // namespace

ncclResult_t Init(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank,
                  bool was_asked_to_block) {
  if (handle == nullptr) return Refuse(ncclInvalidArgument, "comm is null");
  if (ranks < 1 || rank < 0 || rank >= ranks) return Refuse(ncclInvalidArgument, "invalid rank");
  auto comm = std::make_shared<Comm>();
  if (!GetCurrentDevice(&comm->device, &comm->context)) {
    return Refuse(ncclUnhandledCudaError, "Cuda failure: no device is current");
  }
  comm->id = id;
  comm->rank = rank;
  const ncclResult_t joined = Join(comm.get(), ranks);
  if (joined != ncclSuccess) return joined;
  const bool is_blocking = IsBlocking(was_asked_to_block);
  comm->is_blocking = is_blocking;
  Clique& clique = *comm->clique;
  std::unique_lock lock(clique.mutex);
  if (!is_blocking) {
    // NCCL reports its progress here; with no rank to wait for it may be done already.
    const ncclResult_t state = ranks == 1 ? ncclSuccess : ncclInProgress;
    lock.unlock();
    *handle = Register(std::move(comm));
    return state;
  }
  clique.changed.wait(lock, [&] { return clique.IsComplete() || clique.is_given_up; });
  if (clique.is_given_up) return Refuse(ncclSystemError, "a rank did not come");
  const ncclResult_t result = CheckDevices(clique);
  if (result != ncclSuccess) return result;
  lock.unlock();
  *handle = Register(std::move(comm));
  return ncclSuccess;
}

void StopOperations(Comm* comm) {
  Clique& clique = *comm->clique;
  {
    std::unique_lock lock(clique.mutex);
    comm->member().is_ended = true;
    clique.changed.notify_all();
    if (comm->remote != nullptr) comm->remote->Leave();
    clique.changed.wait(lock, [&] { return comm->member().running == 0; });
  }
  comm->JoinLauncher();
}

namespace {

// Returns the state that an operation, or the end of one, would report.
ncclResult_t StateOf(Comm* comm) {
  Clique& clique = *comm->clique;
  const std::lock_guard lock(clique.mutex);
  Member& member = comm->member();
  if (member.error != ncclSuccess) return member.error;
  if (!comm->is_blocking && !clique.IsComplete()) return ncclInProgress;
  if (const ncclResult_t devices = CheckDevices(clique); devices != ncclSuccess) return devices;
  if (comm->is_launching.load(std::memory_order_acquire)) return ncclInProgress;
  if (comm->is_finalizing.load() && member.queued + member.running > 0) return ncclInProgress;
  return ncclSuccess;
}

// At the end of a communicator NCCL waits until no graph holds it, unless it was revoked. Graphs of
// the stand-in live as long as the process.
void CountFreedInGraph(const Comm& comm) {
  if (comm.is_revoked && comm.has_captured) ++counters.freed_in_graph;
}

void AwaitOperations(Comm* comm) {
  comm->JoinLauncher();
  Clique& clique = *comm->clique;
  std::unique_lock lock(clique.mutex);
  const Member& member = comm->member();
  clique.changed.wait(lock, [&] { return member.is_ended || member.queued + member.running == 0; });
}

}  // namespace

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclGetVersion, int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = ONEBIT_TEST_NCCL_VERSION;
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, ncclUniqueId* id) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclGetUniqueId", &told)) return told;
  if (id == nullptr) return ncclInvalidArgument;
  *id = MakeId({.number = NewIdNumber(), .hub = HubName()});
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks,
                          ncclUniqueId id, int rank) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclCommInitRank", &told)) return told;
  return Init(comm, nranks, id, rank, true);
}

#if ONEBIT_TEST_NCCL_VERSION >= 21400
ncclResult_t ReadConfig(const ncclConfig_t* config, bool* is_blocking) {
  if (config == nullptr) return ncclSuccess;
  if (config->size < offsetof(ncclConfig_t, cgaClusterSize) || config->magic != 0xcafebeef) {
    return Refuse(ncclInvalidArgument, "the configuration was not initialised");
  }
  const int blocking = config->version < 21400 ? INT_MIN : config->blocking;
  if (blocking != INT_MIN && blocking != 0 && blocking != 1) {
    return Refuse(ncclInvalidArgument, "invalid config blocking attribute value");
  }
  if (config->version >= 21700 && config->size >= sizeof *config &&
      config->cgaClusterSize != INT_MIN &&
      (config->cgaClusterSize < 0 || config->cgaClusterSize > 8)) {
    return Refuse(ncclInvalidArgument, "invalid config cgaClusterSize attribute value");
  }
  if (blocking != INT_MIN) *is_blocking = blocking != 0;
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks,
                          ncclUniqueId id, int rank, ncclConfig_t* config) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclCommInitRankConfig", &told)) return told;
  bool is_blocking = true;
  const ncclResult_t checked = ReadConfig(config, &is_blocking);
  return checked == ncclSuccess ? Init(comm, nranks, id, rank, is_blocking) : checked;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclCommFinalize", &told)) return told;
  const Use use(comm);
  if (!use) return ncclInvalidArgument;
  ++counters.finalized;
  if (use->is_blocking) {
    AwaitOperations(use.shared().get());
    return ncclSuccess;
  }
  use->is_finalizing = true;
  return ncclInProgress;
}

ONEBIT_TEST_NCCL_FUNCTION(const char*, ncclGetLastError, ncclComm_t) { return LastError(); }

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags) {
  const Use use(comm, Use::Kind::kEnd);
  if (!use || flags != 0) return ncclInvalidArgument;
  ++counters.revoked;
  // If ncclSuccess, the error is one that a call waiting for a peer has missed.
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclCommRevoke", &told)) return told;
  is_revoke_held.wait(true);
  StopOperations(use.shared().get());
  use->is_revoked = true;
  return use->is_blocking ? ncclSuccess : ncclInProgress;
}
#endif

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const Use use(comm);
  if (!use) return ncclInvalidArgument;
  AwaitOperations(use.shared().get());
  ++counters.destroyed;
  CountFreedInGraph(*use.shared());
  Unregister(comm);
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const Use use(comm, Use::Kind::kEnd);
  if (!use) return ncclInvalidArgument;
  ++counters.aborted;
  if (use->is_in_call.load()) ++counters.freed_in_call;
  CountFreedInGraph(*use.shared());
  StopOperations(use.shared().get());
  Unregister(comm);
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm,
                          ncclResult_t* error) {
  const Use use(comm);
  if (!use || error == nullptr) return ncclInvalidArgument;
  *error = StateOf(use.shared().get());
  if (!use->is_launching.load(std::memory_order_acquire)) use->JoinLauncher();
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommCount, ncclComm_t comm, int* count) {
  const Use use(comm);
  if (!use || count == nullptr) return ncclInvalidArgument;
  *count = use->clique->ranks;
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, ncclComm_t comm, int* rank) {
  const Use use(comm);
  if (!use || rank == nullptr) return ncclInvalidArgument;
  *rank = use->rank;
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, ncclComm_t comm, int* device) {
  const Use use(comm);
  if (!use || device == nullptr) return ncclInvalidArgument;
  *device = use->device;
  return ncclSuccess;
}

ONEBIT_TEST_NCCL_FUNCTION(const char*, ncclGetErrorString, ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

}  // namespace onebit::testing::nccl

extern "C" __attribute__((visibility("default"))) void onebitTestNcclEndInits(void) {
  onebit::testing::nccl::GiveUpIncompleteCliques();
}

extern "C" __attribute__((visibility("default"))) void onebitTestNcclHoldRevoke(int is_held) {
  onebit::testing::nccl::is_revoke_held = is_held != 0;
  onebit::testing::nccl::is_revoke_held.notify_all();
}

extern "C" __attribute__((visibility("default"))) unsigned onebitTestNcclFreeRevoked(void) {
  namespace nccl = onebit::testing::nccl;
  unsigned freed = 0;
  for (const ncclComm_t handle : nccl::Handles()) {
    const nccl::Use use(handle, nccl::Use::Kind::kEnd);
    if (!use || !use->is_revoked) continue;
    nccl::Unregister(handle);
    ++freed;
  }
  return freed;
}
