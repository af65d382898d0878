// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Operation: what can be enqueued on a stream of the stand-in, or be a node of a graph.
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

// A place in the order of a stream: after its first `count` operations. Without a stream: no place,
// which has always been reached.
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
  bool is_device_code;  // may access device memory; else it is one of cuLaunchHostFunc
};
struct KernelOperation {
  kernels::cuda::Kernel kernel;
  unsigned ctas;
  alignas(16) std::byte params[4096];  // CUDA's limit for the parameters of a kernel
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
// What an event that keeps the time knows of its last record: nanoseconds of a steady clock.
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

// Runs all but WaitPointOperation, on a stream's thread, without a lock.
void Run(const Operation& operation);

}  // namespace onebit::testing::cuda
