// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/device_calls.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

// Throws if a call of `comm` has failed since it was made.
void CheckCalls(onebitComm_t comm) {
  onebitResult_t error = onebitSuccess;
  Check(onebitCommGetAsyncError(comm, &error), "onebitCommGetAsyncError");
  if (error == onebitSuccess) return;
  throw ToolError(fmt::format("a call on a CUDA stream: {} ({}): {}", onebitGetErrorString(error),
                              static_cast<int>(error), onebitGetLastError(comm)),
                  error == onebitRemoteError);
}

}  // namespace

void AwaitCalls(onebitComm_t comm, const CudaStream& stream) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  auto next_look = Clock::now() + kBetweenLooks;
  while (!stream.IsDone()) {
    if (Clock::now() >= next_look) {
      CheckCalls(comm);
      next_look = Clock::now() + kBetweenLooks;
    }
    std::this_thread::yield();
  }
  CheckCalls(comm);
}

}  // namespace onebit::perf
