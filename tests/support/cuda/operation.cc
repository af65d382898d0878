// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda/operation.h"

#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/cuda/host.h"
#include "src/wait/backoff.h"
#include "tests/support/cuda/capture.h"
#include "tests/support/cuda/protection.h"

namespace onebit::testing::cuda {
namespace {

void Run(const CopyOperation& copy) { std::memmove(copy.to, copy.from, copy.bytes); }

void Run(const FillOperation& fill) { std::memset(fill.to, fill.value, fill.bytes); }

void Run(const FunctionOperation& call) {
  if (call.is_device_code) {
    call.function(call.data);
    return;
  }
  const DeviceMemoryAccess access(false);
  is_in_host_function = true;
  call.function(call.data);
  is_in_host_function = false;
}

void Run(const KernelOperation& launch) {
  kernels::cuda::RunOnHost(launch.kernel, launch.params, launch.ctas);
}

void Run(const WaitPointOperation&) {}  // run by the stream, which holds the lock for it

bool IsReached(const WaitValueOperation& wait) {
  const uint32_t word =
      std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(wait.word)).load(std::memory_order_acquire);
  switch (wait.flags) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == wait.value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & wait.value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return ~(word | wait.value) != 0;
    default:
      return static_cast<int32_t>(word - wait.value) >= 0;
  }
}

void Run(const WaitValueOperation& wait) {
  PollUntil(kNoDeadline, [&] { return IsReached(wait); });
}

void Run(const WriteValueOperation& write) {
  std::atomic_ref<uint32_t>(*write.word).store(write.value, std::memory_order_release);
}

void Run(const TimeOperation& operation) {
  operation.time->store(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Nodes run in the order of their capture, which respects their dependencies. CUDA does not promise
// that independent nodes run concurrently either.
void Run(const GraphOperation& launch) {
  for (const GraphNode& node : launch.graph->nodes) cuda::Run(node.operation);
}

}  // namespace

void Run(const Operation& operation) {
  std::visit([](const auto& kind) { Run(kind); }, operation);
}

}  // namespace onebit::testing::cuda
