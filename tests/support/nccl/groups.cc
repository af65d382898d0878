// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Groups of the calling thread: calls inside them start at the end of the outermost one.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/nccl/cuda_calls.h"
#include "tests/support/nccl/operations.h"
#include "tests/support/nccl/remote_clique.h"
#include "tests/support/nccl/run_operation.h"
#include "tests/support/nccl/stand_in_comm.h"

extern "C" ncclResult_t pncclGroupStart(void);
extern "C" ncclResult_t pncclGroupEnd(void);

namespace onebit::testing::nccl {
namespace {

// Long enough to expose callers that do not wait for a launch in the background.
constexpr std::chrono::milliseconds kLaunchDelay{2};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::unique_ptr<Operation>> operations;
};
// Null outside a group, so a thread that ends has nothing to destroy.
thread_local Group* group = nullptr;

ncclResult_t Refuse(ncclResult_t result, const std::string& text) {
  SetLastError(text);
  if (group != nullptr && group->error == ncclSuccess) group->error = result;
  return result;
}

// NCCL's functions do not throw.
template <typename Body>
ncclResult_t WithoutThrowing(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    if (group != nullptr && group->error == ncclSuccess) group->error = ncclSystemError;
    return ncclSystemError;
  }
}

// Announces all connections of a group to the peers before any operation waits for them, because
// NCCL connects the communicators of a group together.
void AnnounceConnections(const Operation& operation) {
  Comm* comm = operation.comm.get();
  bool is_new = false;
  {
    const std::lock_guard lock(comm->clique->mutex);
    Member& member = comm->member();
    if (operation.collective != nullptr) is_new |= !std::exchange(member.connects_all, true);
    for (const Message& message : operation.messages) {
      auto connects = member.connects_to[static_cast<size_t>(message.peer)];
      is_new |= !connects;
      connects = true;
    }
    comm->clique->changed.notify_all();
  }
  if (is_new && comm->remote != nullptr) comm->remote->SendConnections();
}

// The first message to a peer waits until that peer has one for this rank; the first collective
// waits until all ranks make one.
ncclResult_t Connect(const Operation& operation) {
  Comm* comm = operation.comm.get();
  Clique& clique = *comm->clique;
  const auto is_connected = [&] {
    const auto& members = clique.members;
    const bool has_all = std::all_of(members.begin(), members.end(),
                                     [](const Member& member) { return member.connects_all; });
    if (operation.collective != nullptr && !has_all) return false;
    return std::all_of(operation.messages.begin(), operation.messages.end(),
                       [&](const Message& message) {
                         return members[static_cast<size_t>(message.peer)]
                             .connects_to[static_cast<size_t>(comm->rank)];
                       });
  };
  std::unique_lock lock(clique.mutex);
  clique.changed.wait(lock, [&] { return comm->member().is_ended || is_connected(); });
  return comm->member().is_ended ? ncclInternalError : ncclSuccess;
}

// Keeps operations of graphs, which may be launched until the process ends, reachable, so that they
// are not leaks.
void KeepForGraphs(std::unique_ptr<Operation> operation) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<Operation>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(operation));
}

// The stand-in for CUDA allocates when a stream has more work than it ever had.
bool IsEnqueued(CUstream_st* stream, Operation* operation) {
  try {
    return Enqueue(stream, RunOperation, operation) == 0;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

ncclResult_t Launch(std::unique_ptr<Operation> operation) {
  const ncclResult_t connected = Connect(*operation);
  if (connected != ncclSuccess) return connected;
  const std::shared_ptr<Comm> comm = operation->comm;
  CUstream_st* stream = operation->stream;
  operation->is_once = !IsCapturing(stream);
  operation->is_queued = operation->is_once;
  if (!operation->is_once) comm->has_captured = true;
  Operation* const launched = operation.get();
  if (launched->is_queued) {
    const std::lock_guard lock(comm->clique->mutex);
    ++comm->member().queued;
  } else {
    KeepForGraphs(std::move(operation));
  }
  if (IsEnqueued(stream, launched)) {
    static_cast<void>(operation.release());  // which deletes itself, and may have done so by now
    return ncclSuccess;
  }
  SetLastError("Cuda failure: the stream takes no work");
  if (operation != nullptr) {
    const std::lock_guard lock(comm->clique->mutex);
    --comm->member().queued;
  }
  return ncclUnhandledCudaError;
}

ncclResult_t LaunchInBackground(std::unique_ptr<Operation> operation) {
  const std::shared_ptr<Comm> comm = operation->comm;
  comm->JoinLauncher();
  comm->is_launching.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(comm->mutex);
  // The thread is joined before the communicator ends, so it need not hold a reference.
  comm->launcher = std::thread([operation = std::move(operation)]() mutable {
    Comm* of = operation->comm.get();
    const WithContext current(of->context);
    std::this_thread::sleep_for(kLaunchDelay);
    const std::shared_ptr<Clique> clique = of->clique;
    const int rank = of->rank;
    std::atomic<bool>& is_launching = of->is_launching;
    const ncclResult_t result = Launch(std::move(operation));
    const std::lock_guard clique_lock(clique->mutex);
    Member& member = clique->members[static_cast<size_t>(rank)];
    if (result != ncclSuccess && !member.is_ended) member.error = result;
    is_launching.store(false, std::memory_order_release);
  });
  return ncclInProgress;
}

ncclResult_t CheckComm(const Use& use, const char* function) {
  ncclResult_t told = ncclSuccess;
  if (IsToFail(function, &told)) return Refuse(told, std::string(function) + " was told to fail");
  if (!use) return Refuse(ncclInvalidArgument, "the communicator is not one, or has ended");
  if (use->is_launching.load(std::memory_order_acquire)) {
    return Refuse(ncclInvalidArgument, "the call before this one is in progress");
  }
  int device = 0;
  CUctx_st* context = nullptr;
  if (!GetCurrentDevice(&device, &context) || device != use->device) {
    return Refuse(ncclInvalidUsage, "the communicator's device is not current");
  }
  const std::lock_guard lock(use->clique->mutex);
  if (!use->clique->IsComplete()) return Refuse(ncclInvalidArgument, "it is not ready");
  // NCCL accepts such a group with undefined effects; the stand-in refuses it so that tests notice.
  const bool is_mixed = group != nullptr && !group->operations.empty() &&
                        group->operations.front()->comm->is_blocking != use->is_blocking;
  if (is_mixed) return Refuse(ncclInvalidArgument, "blocking and other communicators in a group");
  const Member& member = use->member();
  if (member.is_ended) return Refuse(ncclInvalidUsage, "the communicator was revoked");
  if (member.error != ncclSuccess) return Refuse(member.error, "an error came before");
  return ncclSuccess;
}

// Finds the group's operation on this communicator and stream.
ncclResult_t FindOperation(const Use& use, CUstream_st* stream, Operation** found) {
  for (const auto& operation : group->operations) {
    if (operation->comm != use.shared() || operation->collective != nullptr) continue;
    if (operation->stream != stream) {
      return Refuse(ncclInvalidUsage, "the stand-in takes one stream in a group");
    }
    *found = operation.get();
    return ncclSuccess;
  }
  group->operations.push_back(std::make_unique<Operation>());
  group->operations.back()->comm = use.shared();
  group->operations.back()->stream = stream;
  *found = group->operations.back().get();
  return ncclSuccess;
}

ncclResult_t AddMessage(ncclComm_t handle, CUstream_st* stream, const Message& message,
                        const char* function) {
  ncclResult_t result = ncclSuccess;
  {
    const Use use(handle);
    result = CheckComm(use, function);
    if (result != ncclSuccess) return result;
    if (message.peer < 0 || message.peer >= use->clique->ranks || message.buffer == nullptr) {
      return Refuse(ncclInvalidArgument, "invalid peer or buffer");
    }
    if (group == nullptr && message.peer == use->rank) {
      return Refuse(ncclInvalidUsage, "a message to itself needs a group");
    }
    result = pncclGroupStart();
    if (result != ncclSuccess) return result;
    result = WithoutThrowing([&] {
      Operation* operation = nullptr;
      const ncclResult_t found = FindOperation(use, stream, &operation);
      if (found == ncclSuccess) operation->messages.push_back(message);
      return found;
    });
  }
  const ncclResult_t end = pncclGroupEnd();
  return result == ncclSuccess ? end : result;
}

ncclResult_t AddCollective(ncclComm_t handle, CUstream_st* stream, Collective collective,
                           void* output, const char* function) {
  ncclResult_t result = ncclSuccess;
  {
    const Use use(handle);
    result = CheckComm(use, function);
    if (result != ncclSuccess) return result;
    if (collective.inputs[0] == nullptr || output == nullptr || collective.root < 0 ||
        collective.root >= use->clique->ranks) {
      return Refuse(ncclInvalidArgument, "invalid root or buffer");
    }
    result = pncclGroupStart();
    if (result != ncclSuccess) return result;
    result = WithoutThrowing([&] {
      auto operation = std::make_unique<Operation>();
      operation->comm = use.shared();
      operation->stream = stream;
      operation->collective = std::make_shared<Collective>(std::move(collective));
      operation->output = output;
      group->operations.push_back(std::move(operation));
      return ncclSuccess;
    });
  }
  const ncclResult_t end = pncclGroupEnd();
  return result == ncclSuccess ? end : result;
}

}  // namespace

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclGroupStart, void) {
  ncclResult_t told = ncclSuccess;
  if (group == nullptr && IsToFail("ncclGroupStart", &told)) return told;
  return WithoutThrowing([] {
    if (group == nullptr) group = new Group;
    ++group->depth;
    return ncclSuccess;
  });
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, void) {
  if (group == nullptr) return ncclInvalidUsage;
  if (--group->depth > 0) return ncclSuccess;
  const std::unique_ptr<Group> ended(std::exchange(group, nullptr));
  ncclResult_t result = ended->error;
  ncclResult_t told = ncclSuccess;
  if (IsToFail("ncclGroupEnd", &told)) return told;
  if (result == ncclSuccess) {
    for (const auto& operation : ended->operations) AnnounceConnections(*operation);
  }
  for (auto& operation : ended->operations) {
    if (result != ncclSuccess && result != ncclInProgress) break;
    const std::shared_ptr<Comm> comm = operation->comm;
    const bool has_call = !comm->is_in_call.exchange(true, std::memory_order_acquire);
    if (!has_call) ++counters.at_a_time;
    result = WithoutThrowing([&] {
      return comm->is_blocking ? Launch(std::move(operation))
                               : LaunchInBackground(std::move(operation));
    });
    if (has_call) comm->is_in_call.store(false, std::memory_order_release);
  }
  return result;
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclSend, const void* buffer, size_t count,
                          ncclDataType_t type, int peer, ncclComm_t comm, ncclTestStream_t stream) {
  ++counters.sends;
  return AddMessage(comm, stream,
                    {.is_send = true,
                     .peer = peer,
                     .buffer = const_cast<void*>(buffer),
                     .bytes = count * BytesOf(type)},
                    "ncclSend");
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclRecv, void* buffer, size_t count, ncclDataType_t type,
                          int peer, ncclComm_t comm, ncclTestStream_t stream) {
  return AddMessage(
      comm, stream,
      {.is_send = false, .peer = peer, .buffer = buffer, .bytes = count * BytesOf(type)},
      "ncclRecv");
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclAllReduce, const void* send, void* recv, size_t count,
                          ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                          ncclTestStream_t stream) {
  ++counters.all_reduces;
  return AddCollective(comm, stream, {.count = count, .type = type, .op = op, .inputs = {send}},
                       recv, "ncclAllReduce");
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclBroadcast, const void* send, void* recv, size_t count,
                          ncclDataType_t type, int root, ncclComm_t comm, ncclTestStream_t stream) {
  return AddCollective(comm, stream,
                       {.kind = Collective::Kind::kBroadcast,
                        .count = count,
                        .type = type,
                        .root = root,
                        .inputs = {send}},
                       recv, "ncclBroadcast");
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclReduceScatter, const void* send, void* recv,
                          size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                          ncclTestStream_t stream) {
  return AddCollective(comm, stream,
                       {.kind = Collective::Kind::kReduceScatter,
                        .count = count,
                        .type = type,
                        .op = op,
                        .inputs = {send}},
                       recv, "ncclReduceScatter");
}

ONEBIT_TEST_NCCL_FUNCTION(ncclResult_t, ncclAllGather, const void* send, void* recv, size_t count,
                          ncclDataType_t type, ncclComm_t comm, ncclTestStream_t stream) {
  return AddCollective(
      comm, stream,
      {.kind = Collective::Kind::kAllGather, .count = count, .type = type, .inputs = {send}}, recv,
      "ncclAllGather");
}

}  // namespace onebit::testing::nccl

extern "C" __attribute__((visibility("default"))) int onebitTestNcclGroupDepth(void) {
  const auto* group = onebit::testing::nccl::group;
  return group == nullptr ? 0 : group->depth;
}
