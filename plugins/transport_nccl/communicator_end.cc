// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How a communicator ends: in order, or aborted.
#include <exception>
#include <functional>
#include <utility>

#include "plugins/transport_nccl/beside.h"
#include "plugins/transport_nccl/communicator.h"
#include "plugins/transport_nccl/pauses.h"

namespace onebit::nccl {
namespace {

// A holder of the turn that is not stuck in NCCL gives it up within this.
constexpr uint64_t kHolderMs = 1000;
// Most of the time that an abort takes.
constexpr uint64_t kAbortMs = 5000;

}  // namespace

Communicator::~Communicator() {
  CommHandle handle = handle_.load(std::memory_order_acquire);
  if (handle == nullptr || is_joined_ || is_ending_.exchange(true, std::memory_order_acq_rel)) {
    return;
  }
  const CurrentContext current(*place_.driver, place_.device_context);
  if (!current.is_alive()) return;
  if (failure_.load(std::memory_order_acquire) != onebitSuccess) {
    AbortHandle(handle);
    return;
  }
  EndInOrder(handle);
}

// ncclCommFinalize and ncclCommDestroy wait for work that was started, and so for the peers.
void Communicator::EndInOrder(CommHandle handle) {
  const auto patience_ms = context_.options().close_ms;
  if (!is_blocking_ && api_.CommFinalize != nullptr) {
    int result = api_.CommFinalize(handle);
    if (result == kInProgress) result = Await(handle, patience_ms);
    if (result == kSuccess) {
      api_.CommDestroy(handle);
      return;
    }
    const std::string reason = result == kInProgress ? "its work was not done within " +
                                                           std::to_string(patience_ms) + " ms"
                                                     : api_.Explain(result);
    context_.Warn("rank %d: the communicator was aborted at its end: %s", rank_, reason.c_str());
    api_.CommAbort(handle);
    return;
  }
  // An abort beside it would free what it uses.
  bool is_done = false;
  try {
    const auto end = [api = context_.shared_api(), place = place_, handle] {
      const CurrentContext current(*place.driver, place.device_context);
      if (api->CommFinalize != nullptr) api->CommFinalize(handle);
      api->CommDestroy(handle);
    };
    is_done = RunBeside(
        end, [] {}, patience_ms, [] { return false; });
  } catch (const std::exception&) {
    // No thread, no memory: it is left as it is.
  }
  if (!is_done) {
    context_.Warn(
        "rank %d: the communicator's work was not done within %llu ms, so it is left to "
        "NCCL",
        rank_, static_cast<unsigned long long>(patience_ms));
  }
}

// An abort of a blocking communicator, and of any before 2.14, waits until no graph holds a call of
// it any more.
void Communicator::AbortHandle(CommHandle handle) {
  if (!is_blocking_) {
    api_.CommAbort(handle);
    return;
  }
  CallBeside([handle](const NcclApi& nccl) { nccl.CommAbort(handle); }, kAbortMs);
}

bool Communicator::CallBeside(std::function<void(const NcclApi&)> call, uint64_t timeout_ms) const {
  try {
    return RunBeside(
        [api = context_.shared_api(), place = place_, call = std::move(call)] {
          const CurrentContext current(*place.driver, place.device_context);
          if (current.is_alive()) call(*api);
        },
        [] {}, timeout_ms, [] { return false; });
  } catch (const std::exception&) {
    return false;  // no thread or no memory: the communicator is left as it is
  }
}

void Communicator::Abort() {
  if (!turn_.MarkAborted()) return;
  Pauses pauses(kHolderMs);
  do {
    if (turn_.TryTake()) {
      GiveTurn();
      return;
    }
  } while (pauses.Wait());
  EndAborted();
}

void Communicator::EndAborted() {
  CommHandle handle = handle_.load(std::memory_order_acquire);
  if (handle == nullptr || is_ending_.exchange(true, std::memory_order_acq_rel)) return;
  const CurrentContext current(*place_.driver, place_.device_context);
  if (!current.is_alive()) return;
  if (!is_joined_) {
    AbortHandle(handle);
    return;
  }
  // The handle is the application's: it is stopped where NCCL can do that, and never freed.
  if (api_.CommRevoke == nullptr) return;
  if (api_.CommRevoke(handle, 0) != kInProgress) return;
  Pauses pauses(kHolderMs);
  int state = kInProgress;
  do {
    if (api_.CommGetAsyncError(handle, &state) != kSuccess) return;
  } while (state == kInProgress && pauses.Wait());
}

}  // namespace onebit::nccl
