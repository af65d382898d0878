// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Holds streams up, and waits for them and for errors with a limit.
#pragma once

#include <atomic>
#include <chrono>

#include "onebit/onebit.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {

// Holds a stream up until it is opened, at the latest at the end of the scope.
class StreamGate {
 public:
  explicit StreamGate(const CudaStream& stream);
  ~StreamGate() { Open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  // Returns when the stream has continued.
  void Open();

 private:
  std::atomic<bool> is_open_{false};
  std::atomic<bool> is_passed_{false};
};

// Returns false if the stream still has work after `limit`.
bool IsDoneWithin(const CudaStream& stream, std::chrono::milliseconds limit);

// Returns the communicator's error as soon as there is one; onebitSuccess if there is none in time.
Outcome AwaitError(onebitComm_t comm, std::chrono::milliseconds limit = kTestTimeout);

}  // namespace onebit::testing
