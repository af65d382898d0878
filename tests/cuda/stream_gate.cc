// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/stream_gate.h"

#include <stdexcept>
#include <thread>

namespace onebit::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kPause{200};

}  // namespace

StreamGate::StreamGate(const CudaStream& stream) {
  CheckCuda(cuLaunchHostFunc(
                stream.get(),
                [](void* raw) {
                  auto* const gate = static_cast<StreamGate*>(raw);
                  while (!gate->is_open_.load()) std::this_thread::sleep_for(kPause);
                  gate->is_passed_.store(true);
                },
                this),
            "cuLaunchHostFunc");
}

void StreamGate::Open() {
  is_open_.store(true);
  while (!is_passed_.load()) std::this_thread::sleep_for(kPause);
}

bool IsDoneWithin(const CudaStream& stream, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!stream.IsIdle()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

Outcome AwaitError(onebitComm_t comm, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  Outcome outcome;
  while (outcome.result == onebitSuccess && Clock::now() < end) {
    if (onebitCommGetAsyncError(comm, &outcome.result) != onebitSuccess) {
      throw std::runtime_error(onebitGetLastError(nullptr));
    }
    std::this_thread::sleep_for(kPause);
  }
  outcome.text = onebitGetLastError(comm);
  return outcome;
}

}  // namespace onebit::testing
