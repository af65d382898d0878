// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Stream: a thread that runs operations in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/cuda/world.h"

namespace onebit::testing::cuda {

// Guarded by the world's lock, but for the operation that the thread is running.
struct Stream {
  // As many launches can be pending before CUDA makes the host wait, too.
  static constexpr size_t kSlots = 512;

  Context* context = nullptr;
  bool is_legacy = false;
  bool is_blocking = false;  // waits for the legacy stream, as that waits for it
  bool is_closing = false;

  Queue* queue = nullptr;  // null: its own
  struct Slot {
    Operation operation;
    uint64_t place;  // in the queue
  };
  std::unique_ptr<Slot[]> slots;
  uint64_t enqueued = 0;
  uint64_t completed = 0;
  std::condition_variable work;  // for the thread
  std::condition_variable done;  // for those who wait for a point

  // While it is captured: nodes on which the next one depends.
  Capture* capture = nullptr;
  std::vector<size_t> nodes;

  Point tail() { return {this, enqueued}; }
};

// Numbers of CUDA's priorities: a lower one goes first.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

// Makes a stream and starts its thread. Under the lock.
Stream* MakeStream(World& world, Context* context, bool is_legacy, bool is_blocking,
                   int priority = kLeastPriority);

// The stream of a handle: null is the legacy one of the current context, which must then exist.
// Fails for handles that are none, for broken devices, and, with `is_legacy_error`, for a legacy
// stream while one that it would wait for is captured, which ends that capture.
CUresult FindStream(World& world, CUstream handle, Stream** stream);

bool IsReached(const Point& point);
void WaitFor(Lock& lock, const Point& point);

// Makes `stream` wait for `point` unless it has been reached.
void EnqueueWait(Lock& lock, Stream& stream, const Point& point);
// What legacy and blocking streams owe each other; before every operation and record.
void EnqueueImplicitWaits(World& world, Lock& lock, Stream& stream);
// Runs `operation` on the stream after what is there, or makes it a node if the stream is captured.
CUresult Enqueue(World& world, Lock& lock, Stream& stream, const Operation& operation);
// All that has to be done until the stream is idle, as a host that synchronises with it sees it.
std::vector<Point> Pending(World& world, Stream& stream);

}  // namespace onebit::testing::cuda
