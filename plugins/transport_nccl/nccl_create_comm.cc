// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Creates a communicator of NCCL with a deadline, which NCCL does not have.
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>

#include "plugins/common/run_detached.h"
#include "plugins/transport_nccl/communicator.h"

namespace onebit::nccl {
namespace {

// True if calls on a new communicator wait in NCCL. NCCL_COMM_BLOCKING, which NCCL reads as a
// number, overrides the configuration, and may come from a file that NCCL itself loads into the
// environment. All ranks must come to the same answer, including one for which NCCL had nothing to
// wait for.
bool IsBlocking(bool has_config, bool was_asked_for, int result) {
  if (!has_config) return true;
  if (result == kInProgress) return false;
  const char* const value = std::getenv("NCCL_COMM_BLOCKING");
  if (value == nullptr || *value == '\0') return was_asked_for;
  const long long number = std::strtoll(value, nullptr, 0);
  return number == 0 || number == 1 ? number == 1 : was_asked_for;
}

// The inputs and outputs of the thread in which NCCL waits for the other ranks. It may outlive
// everything else.
struct Start {
  std::shared_ptr<const NcclApi> api;
  DeviceBinding binding;
  UniqueId id;
  int rank = 0;
  int ranks = 1;
  bool is_blocking = false;

  CommHandle handle = nullptr;
  int result = kSuccess;
  std::string text;  // error text

  void Run() {
    const cuda::CurrentContext current(*binding.driver, binding.device_context);
    if (api->CommInitRankConfig != nullptr) {
      Config config{.blocking = is_blocking ? 1 : 0};
      result = api->CommInitRankConfig(&handle, ranks, id, rank, &config);
    } else {
      result = api->CommInitRank(&handle, ranks, id, rank);
    }
    if (result != kSuccess && result != kInProgress) text = api->Explain(result);
  }

  void Undo() {
    if (result != kSuccess && result != kInProgress) return;
    const cuda::CurrentContext current(*binding.driver, binding.device_context);
    if (current.is_alive()) api->CommAbort(handle);
  }
};

}  // namespace

onebitResult_t Communicator::Create(const UniqueId& id, uint64_t timeout_ms) {
  return Use([&](CommHandle) {
    timeout_ms_ = timeout_ms;
    const std::string late = "not all of " + std::to_string(ranks_) + " ranks called NCCL within " +
                             std::to_string(timeout_ms) + " ms";
    auto start = std::make_shared<Start>(Start{.api = context_.shared_api(),
                                               .binding = binding_,
                                               .id = id,
                                               .rank = rank_,
                                               .ranks = ranks_,
                                               .is_blocking = context_.options().is_blocking != 0});
    bool is_done = false;
    try {
      is_done = plugin::RunDetached([start] { start->Run(); }, [start] { start->Undo(); },
                                    timeout_ms, [this] { return lock_.is_aborted(); });
    } catch (const std::system_error& error) {
      return Fail(onebitSystemError, std::string("no thread to start NCCL in: ") + error.what());
    }
    if (!is_done) return lock_.is_aborted() ? onebitAborted : Fail(onebitTimeout, late);
    const char* what = start->api->CommInitRankConfig != nullptr ? "ncclCommInitRankConfig failed: "
                                                                 : "ncclCommInitRank failed: ";
    if (start->result != kSuccess && start->result != kInProgress) {
      return Fail(ResultOf(start->result), what + start->text);
    }
    is_blocking_ =
        IsBlocking(start->api->CommInitRankConfig != nullptr, start->is_blocking, start->result);
    handle_.store(start->handle, std::memory_order_release);
    if (start->result == kSuccess) return onebitSuccess;
    const int state = Await(start->handle, timeout_ms);
    if (state == kSuccess) return onebitSuccess;
    if (lock_.is_aborted()) return onebitAborted;
    if (state == kInProgress) return Fail(onebitTimeout, late);
    return Fail(ResultOf(state), what + api_.Explain(state));
  });
}

}  // namespace onebit::nccl
