// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Handles, which are never reused, and the functions by which tests inspect them.
#include "tests/support/nccl/stand_in_comm.h"

#include <map>
#include <string>
#include <utility>

#include "tests/support/nccl/operations.h"
#include "tests/support/nccl/remote_clique.h"

namespace onebit::testing::nccl {

Counters counters;

namespace {

std::mutex mutex;  // guards everything below
// Never destroyed, because threads may outlive main.
auto& comms = *new std::map<ncclComm_t, std::shared_ptr<Comm>>;
uintptr_t next_handle = 0x10000;
struct Rule {
  unsigned times;
  ncclResult_t result;
};
auto& rules = *new std::map<std::string, Rule>;

}  // namespace

Comm::~Comm() {
  if (launcher.joinable()) launcher.join();
  if (remote != nullptr) remote->Leave();
}

void Comm::JoinLauncher() {
  const std::lock_guard lock(mutex);
  if (launcher.joinable()) launcher.join();
}

Use::Use(ncclComm_t handle, Kind kind) {
  {
    const std::lock_guard lock(mutex);
    const auto found = comms.find(handle);
    if (found == comms.end()) {
      ++counters.after_end;
      SetLastError("the communicator is not one, or has ended");
      return;
    }
    comm_ = found->second;
  }
  if (kind == Kind::kEnd) return;
  has_call_ = !comm_->is_in_call.exchange(true, std::memory_order_acquire);
  if (!has_call_) ++counters.at_a_time;
}

Use::~Use() {
  if (has_call_) comm_->is_in_call.store(false, std::memory_order_release);
}

ncclComm_t Register(std::shared_ptr<Comm> comm) {
  const std::lock_guard lock(mutex);
  const auto handle = reinterpret_cast<ncclComm_t>(next_handle += 16);
  comms[handle] = std::move(comm);
  ++counters.created;
  return handle;
}

void Unregister(ncclComm_t handle) {
  std::shared_ptr<Comm> ended;  // dropped without the lock, because its end waits for a thread
  const std::lock_guard lock(mutex);
  const auto found = comms.find(handle);
  if (found == comms.end()) return;
  ended = std::move(found->second);
  comms.erase(found);
}

std::vector<ncclComm_t> Handles() {
  const std::lock_guard lock(mutex);
  std::vector<ncclComm_t> handles;
  for (const auto& [handle, comm] : comms) handles.push_back(handle);
  return handles;
}

bool IsToFail(const char* function, ncclResult_t* result) {
  const std::lock_guard lock(mutex);
  const auto found = rules.find(function);
  if (found == rules.end() || found->second.times == 0) return false;
  --found->second.times;
  *result = found->second.result;
  SetLastError(std::string(function) + " was told to fail");
  return true;
}

}  // namespace onebit::testing::nccl

namespace nccl = onebit::testing::nccl;
#define ONEBIT_EXPORT extern "C" __attribute__((visibility("default")))

ONEBIT_EXPORT void onebitTestNcclFail(const char* function, unsigned times, ncclResult_t result) {
  const std::lock_guard lock(nccl::mutex);
  nccl::rules[function] = {times, result};
}

ONEBIT_EXPORT void onebitTestNcclBreak(int device, ncclResult_t error, const char* text) {
  nccl::SetLastError(text);
  const std::lock_guard lock(nccl::mutex);
  for (const auto& [handle, comm] : nccl::comms) {
    if (comm->device != device) continue;
    const std::lock_guard clique_lock(comm->clique->mutex);
    comm->member().error = error;
    comm->clique->changed.notify_all();
  }
}

ONEBIT_EXPORT void onebitTestNcclDamage(int device, unsigned skip) {
  const std::lock_guard lock(nccl::mutex);
  for (const auto& [handle, comm] : nccl::comms) {
    if (comm->device != device) continue;
    const std::lock_guard clique_lock(comm->clique->mutex);
    comm->member().until_damage = skip;
  }
}

ONEBIT_EXPORT void onebitTestNcclGetCounts(onebitTestNcclCounts* counts) {
  const std::lock_guard lock(nccl::mutex);
  *counts = {.live_comms = nccl::comms.size(),
             .created = nccl::counters.created,
             .destroyed = nccl::counters.destroyed,
             .finalized = nccl::counters.finalized,
             .aborted = nccl::counters.aborted,
             .revoked = nccl::counters.revoked,
             .sends = nccl::counters.sends,
             .all_reduces = nccl::counters.all_reduces,
             .all_to_alls = nccl::counters.all_to_alls,
             .configured = nccl::counters.configured,
             .after_end = nccl::counters.after_end,
             .at_a_time = nccl::counters.at_a_time,
             .freed_in_call = nccl::counters.freed_in_call,
             .freed_in_graph = nccl::counters.freed_in_graph};
}

ONEBIT_EXPORT uint64_t onebitTestNcclWireBytes(void) { return nccl::counters.wire_bytes; }

ONEBIT_EXPORT uint64_t onebitTestNcclAllReduces(void) { return nccl::counters.all_reduces; }
