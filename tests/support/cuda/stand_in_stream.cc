// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda/stand_in_stream.h"

#include <algorithm>
#include <thread>

#include "tests/support/cuda/capture.h"
#include "tests/support/cuda/protection.h"

namespace onebit::testing::cuda {
namespace {

void RunStream(World& world, Stream& stream) {
  SetAccess(true);
  Lock lock(world.mutex);
  for (;;) {
    stream.work.wait(lock, [&] { return stream.completed < stream.enqueued || stream.is_closing; });
    if (stream.completed == stream.enqueued) break;
    const Stream::Slot& slot = *stream.slots[stream.completed % Stream::kSlots];
    Queue* const queue = stream.queue;
    if (queue != nullptr) queue->turn.wait(lock, [&] { return queue->done == slot.place; });
    if (const auto* wait = std::get_if<WaitPointOperation>(&slot.operation)) {
      WaitFor(lock, wait->point);
    } else {
      lock.unlock();
      Run(slot.operation);
      lock.lock();
    }
    if (queue != nullptr) {
      ++queue->done;
      queue->turn.notify_all();
    }
    ++stream.completed;
    stream.done.notify_all();
  }
  stream.slots = {};
  world.running.erase(&stream);
}

void Push(Lock& lock, Stream& stream, const Operation& operation) {
  stream.done.wait(lock, [&] { return stream.enqueued - stream.completed < Stream::kSlots; });
  std::unique_ptr<Stream::Slot>& slot = stream.slots[stream.enqueued % Stream::kSlots];
  if (slot == nullptr) slot = std::make_unique_for_overwrite<Stream::Slot>();
  *slot = {operation, stream.queue == nullptr ? 0 : stream.queue->given++};
  ++stream.enqueued;
  stream.work.notify_one();
}

// Returns the next of the queues that streams of a priority share, in rotation.
Queue* QueueFor(const World& world, Context& context, int priority) {
  if (world.queues_per_priority == 0) return nullptr;
  Context::Queues& queues = context.queues[priority];
  while (queues.all.size() < world.queues_per_priority) {
    queues.all.push_back(std::make_unique<Queue>());
  }
  return queues.all[queues.next++ % queues.all.size()].get();
}

}  // namespace

Stream* MakeStream(World& world, Context* context, bool is_legacy, bool is_blocking, int priority) {
  auto made = std::make_unique<Stream>();
  Stream* const stream = made.get();
  stream->context = context;
  stream->is_legacy = is_legacy;
  stream->is_blocking = is_blocking;
  stream->queue =
      QueueFor(world, *context, std::clamp(priority, kGreatestPriority, kLeastPriority));
  world.streams.push_back(std::move(made));
  world.running.insert(stream);
  if (!is_legacy) world.live_streams.insert(stream);
  std::thread([&world, stream] { RunStream(world, *stream); }).detach();
  return stream;
}

CUresult FindStream(World& world, CUstream handle, Stream** stream) {
  Stream* found = reinterpret_cast<Stream*>(handle);
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    Context* context = nullptr;
    ONEBIT_CU_TRY(RequireContext(&context));
    found = context->legacy;
  } else if (world.live_streams.count(found) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (found->context->device->broken != CUDA_SUCCESS) return found->context->device->broken;
  *stream = found;
  return CUDA_SUCCESS;
}

bool IsReached(const Point& point) {
  return point.stream == nullptr || point.stream->completed >= point.count;
}

void WaitFor(Lock& lock, const Point& point) {
  if (point.stream != nullptr) {
    point.stream->done.wait(lock, [&] { return IsReached(point); });
  }
}

void EnqueueWait(Lock& lock, Stream& stream, const Point& point) {
  if (point.stream != &stream && !IsReached(point)) Push(lock, stream, WaitPointOperation{point});
}

void EnqueueImplicitWaits(World& world, Lock& lock, Stream& stream) {
  if (stream.is_legacy) {
    // Push releases the lock while the stream is full, so the set may change.
    std::vector<Point> points;
    for (Stream* other : world.running) {
      if (other->is_blocking && other->context == stream.context) points.push_back(other->tail());
    }
    for (const Point& point : points) EnqueueWait(lock, stream, point);
  } else if (stream.is_blocking) {
    EnqueueWait(lock, stream, stream.context->legacy->tail());
  }
}

CUresult Enqueue(World& world, Lock& lock, Stream& stream, const Operation& operation) {
  if (stream.capture != nullptr) return AddNode(stream, operation);
  if (stream.is_legacy) {
    if (Capture* capture = CaptureThatForbidsLegacy(world, *stream.context)) {
      return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  EnqueueImplicitWaits(world, lock, stream);
  Push(lock, stream, operation);
  return CUDA_SUCCESS;
}

std::vector<Point> Pending(World& world, Stream& stream) {
  std::vector<Point> points;
  const auto add = [&](Stream& other) {
    if (!IsReached(other.tail())) points.push_back(other.tail());
  };
  add(stream);
  if (stream.is_legacy) {
    for (Stream* other : world.running) {
      if (other->is_blocking && other->context == stream.context) add(*other);
    }
  } else if (stream.is_blocking) {
    add(*stream.context->legacy);
  }
  return points;
}

}  // namespace onebit::testing::cuda
