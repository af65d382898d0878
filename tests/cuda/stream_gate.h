// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Streams that are held up, and waits for them and for errors that end.
#pragma once

#include <atomic>
#include <chrono>

#include "onebit/onebit.h"
#include "tests/cuda/cuda_memory.h"

namespace onebit::testing {

// Holds a stream up until it is opened, at the latest by its end.
class StreamGate {
 public:
  explicit StreamGate(const CudaStream& stream);
  ~StreamGate() { Open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  // Returns when the stream has gone on.
  void Open();

 private:
  std::atomic<bool> is_open_{false};
  std::atomic<bool> is_passed_{false};
};

// False: it has work after all that time.
bool IsDoneWithin(const CudaStream& stream, std::chrono::milliseconds limit);

// The error of a communicator once there is one; onebitSuccess if none comes in time.
onebitResult_t AwaitError(onebitComm_t comm, std::chrono::milliseconds limit);

}  // namespace onebit::testing
