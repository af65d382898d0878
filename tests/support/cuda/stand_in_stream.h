// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Stream: a thread that runs operations in order.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/cuda/world.h"

namespace onebit::testing::cuda {

// Guarded by the world's lock, except for the operation that the thread is running.
struct Stream {
  // CUDA, too, makes the host wait when this many launches are pending.
  static constexpr size_t kSlots = 512;

  Context* context = nullptr;
  bool is_legacy = false;
  bool is_blocking = false;  // waits for the legacy stream, and the legacy stream for it
  bool is_closing = false;

  Queue* queue = nullptr;  // null: the stream has a queue of its own
  struct Slot {
    Operation operation;
    uint64_t place;  // in the queue
  };
  std::array<std::unique_ptr<Slot>, kSlots> slots;  // made when first used, because they are large
  uint64_t enqueued = 0;
  uint64_t completed = 0;
  std::condition_variable work;  // wakes the thread
  std::condition_variable done;  // wakes those who wait for a point

  // The capture it belongs to, with the nodes on which its next node depends.
  Capture* capture = nullptr;
  std::vector<size_t> nodes;

  Point tail() { return {this, enqueued}; }
};

// CUDA's priorities: lower numbers go first.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

// Creates a stream and starts its thread. Requires the lock.
Stream* MakeStream(World& world, Context* context, bool is_legacy, bool is_blocking,
                   int priority = kLeastPriority);

// Returns the stream of a handle; null is the legacy stream of the current context, which must
// exist. Fails for invalid handles, for broken devices, and, with `is_legacy_error`, for a legacy
// stream while a stream that it would wait for is being captured, which breaks that capture.
CUresult FindStream(World& world, CUstream handle, Stream** stream);

bool IsReached(const Point& point);
void WaitFor(Lock& lock, const Point& point);

// Makes `stream` wait for `point` unless it has been reached.
void EnqueueWait(Lock& lock, Stream& stream, const Point& point);
// Enqueues the implicit waits between legacy and blocking streams. Called before every operation
// and record.
void EnqueueImplicitWaits(World& world, Lock& lock, Stream& stream);
// Runs `operation` on the stream after earlier ones, or adds it to the stream's capture.
CUresult Enqueue(World& world, Lock& lock, Stream& stream, const Operation& operation);
// Returns everything that must complete before the stream is idle, as a host that synchronises with
// it sees it.
std::vector<Point> Pending(World& world, Stream& stream);

}  // namespace onebit::testing::cuda
