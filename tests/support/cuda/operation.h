// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Operation: work that can be enqueued on a stream of the stand-in, or be a node of a graph.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include "kernels/cuda/kernel_table.h"
#include "tests/support/cuda/driver_calls.h"

namespace onebit::testing::cuda {

struct Stream;
struct GraphExec;

// A point in a stream: after its first `count` operations. A point without a stream has always been
// reached.
struct Point {
  Stream* stream = nullptr;
  uint64_t count = 0;
};

struct CopyOperation {
  void* to;
  const void* from;
  size_t bytes;
};
struct FillOperation {
  void* to;
  uint8_t value;
  size_t bytes;
};
struct FunctionOperation {
  void (*function)(void* data);
  void* data;
  bool is_device_code;  // may access device memory; false for functions of cuLaunchHostFunc
};
struct KernelOperation {
  kernels::cuda::Kernel kernel;
  unsigned ctas;
  alignas(16) std::byte params[32764];  // as many as CUDA's kernels may take, since 12.1
};
struct WaitPointOperation {
  Point point;
};
struct WaitValueOperation {
  const uint32_t* word;
  uint32_t value;
  unsigned flags;
};
struct WriteValueOperation {
  uint32_t* word;
  uint32_t value;
};
// Time of the last record of a timing event, in nanoseconds of a steady clock.
using EventTime = std::atomic<int64_t>;
struct TimeOperation {
  std::shared_ptr<EventTime> time;
};
struct GraphOperation {
  GraphExec* graph;
};

using Operation = std::variant<CopyOperation, FillOperation, FunctionOperation, KernelOperation,
                               WaitPointOperation, WaitValueOperation, WriteValueOperation,
                               TimeOperation, GraphOperation>;

// Runs all operations but WaitPointOperation, on a stream's thread, without the lock.
void Run(const Operation& operation);

}  // namespace onebit::testing::cuda
