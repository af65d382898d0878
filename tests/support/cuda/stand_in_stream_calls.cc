// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA driver functions for streams and events.
#include "tests/support/cuda/capture.h"
#include "tests/support/cuda/stand_in_stream.h"

namespace onebit::testing::cuda {
namespace {

CUresult MakeStreamHandle(CUstream* handle, unsigned flags, int priority) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  const bool is_blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  *handle = reinterpret_cast<CUstream>(MakeStream(world, context, false, is_blocking, priority));
  return CUDA_SUCCESS;
}

CUresult FindEvent(World& world, CUevent handle, Event** event) {
  Event* const found = reinterpret_cast<Event*>(handle);
  if (world.live_events.count(found) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (found->context->device->broken != CUDA_SUCCESS) return found->context->device->broken;
  *event = found;
  return CUDA_SUCCESS;
}

// For calls that query a stream, which is not allowed while it is being captured.
CUresult FindStreamToAsk(World& world, CUstream handle, Stream** stream) {
  ONEBIT_CU_TRY(FindStream(world, handle, stream));
  if ((*stream)->capture != nullptr) {
    return Invalidate(*(*stream)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if ((*stream)->is_legacy) {
    if (Capture* capture = CaptureThatForbidsLegacy(world, *(*stream)->context)) {
      return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  return CheckUnsafe(world);
}

CUresult FindEventToAsk(World& world, CUevent handle, Event** event) {
  ONEBIT_CU_TRY(FindEvent(world, handle, event));
  if ((*event)->capture != 0) {
    if (Capture* capture = FindCapture(world, (*event)->capture)) {
      return Invalidate(*capture, CUDA_ERROR_CAPTURED_EVENT);
    }
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return CheckUnsafe(world);
}

CUresult EnqueueOn(CUstream handle, const Operation& operation) {
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  return Enqueue(world, lock, *stream, operation);
}

// Checks the address of a value that a stream waits for or writes.
CUresult CheckWord(CUdeviceptr address) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  if (address % sizeof(uint32_t) != 0) return CUDA_ERROR_INVALID_VALUE;
  return IsWithinBlock(world, reinterpret_cast<void*>(address), sizeof(uint32_t))
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace onebit::testing::cuda

using namespace onebit::testing::cuda;

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  ONEBIT_BEGIN(cuStreamCreate);
  return MakeStreamHandle(stream, flags, kLeastPriority);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  ONEBIT_BEGIN(cuStreamCreateWithPriority);
  return MakeStreamHandle(stream, flags, priority);
}

// Operations already in the stream still run.
CUresult cuStreamDestroy_v2(CUstream handle) {
  ONEBIT_BEGIN(cuStreamDestroy_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Stream* const stream = reinterpret_cast<Stream*>(handle);
  if (world.live_streams.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {
    return Invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  stream->is_closing = true;
  stream->work.notify_one();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  ONEBIT_BEGIN(cuStreamGetCtx);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  *context = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
  ONEBIT_BEGIN(cuStreamQuery);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStreamToAsk(world, handle, &stream));
  return Pending(world, *stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle) {
  ONEBIT_BEGIN(cuStreamSynchronize);
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStreamToAsk(world, handle, &stream));
  TheCounters().host_waits.fetch_add(1);
  for (const Point& point : Pending(world, *stream)) WaitFor(lock, point);
  return stream->context->device->broken;
}

CUresult cuCtxSynchronize(void) {
  ONEBIT_BEGIN(cuCtxSynchronize);
  World& world = TheWorld();
  Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  ONEBIT_CU_TRY(CheckUnsafe(world));
  TheCounters().host_waits.fetch_add(1);
  for (size_t i = 0; i < world.streams.size(); ++i) {
    if (world.streams[i]->context == context) WaitFor(lock, world.streams[i]->tail());
  }
  return context->device->broken;
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  ONEBIT_BEGIN(cuEventCreate);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Context* context = nullptr;
  ONEBIT_CU_TRY(RequireContext(&context));
  auto* const event = new Event;
  event->context = context;
  event->has_timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  world.live_events.insert(event);
  *handle = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  ONEBIT_BEGIN(cuEventDestroy_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Event* const event = reinterpret_cast<Event*>(handle);
  if (world.live_events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event_handle, CUstream handle) {
  ONEBIT_BEGIN(cuEventRecord);
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  Event* event = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  ONEBIT_CU_TRY(FindEvent(world, event_handle, &event));
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {
    if (!stream->capture->is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->point = {};
    event->capture = stream->capture->id;
    event->nodes = stream->nodes;
    return CUDA_SUCCESS;
  }
  if (stream->is_legacy) {
    if (Capture* capture = CaptureThatForbidsLegacy(world, *stream->context)) {
      return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  EnqueueImplicitWaits(world, lock, *stream);
  event->capture = 0;
  event->nodes.clear();
  if (event->has_timing) {
    event->time = std::make_shared<EventTime>();
    ONEBIT_CU_TRY(Enqueue(world, lock, *stream, TimeOperation{event->time}));
  }
  event->point = stream->tail();
  return CUDA_SUCCESS;
}

// cuda.h maps the name to a later version, so it does not declare this one.
#undef cuEventElapsedTime
extern "C" __attribute__((visibility("default"))) CUresult cuEventElapsedTime(float* milliseconds,
                                                                              CUevent from_handle,
                                                                              CUevent to_handle) {
  ONEBIT_BEGIN(cuEventElapsedTime);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Event* from = nullptr;
  Event* to = nullptr;
  ONEBIT_CU_TRY(FindEventToAsk(world, from_handle, &from));
  ONEBIT_CU_TRY(FindEventToAsk(world, to_handle, &to));
  if (from->context != to->context || from->time == nullptr || to->time == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!IsReached(from->point) || !IsReached(to->point)) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(to->time->load() - from->time->load()) * 1e-6f;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  ONEBIT_BEGIN(cuStreamWaitEvent);
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  Event* event = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  ONEBIT_CU_TRY(FindEvent(world, event_handle, &event));
  if (stream->capture != nullptr || event->capture != 0) {
    return WaitCaptured(world, *stream, *event);
  }
  if (stream->is_legacy) {
    if (Capture* capture = CaptureThatForbidsLegacy(world, *stream->context)) {
      return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
  }
  const Point point = event->point;
  EnqueueImplicitWaits(world, lock, *stream);
  EnqueueWait(lock, *stream, point);
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  ONEBIT_BEGIN(cuEventQuery);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Event* event = nullptr;
  ONEBIT_CU_TRY(FindEventToAsk(world, handle, &event));
  return IsReached(event->point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  ONEBIT_BEGIN(cuEventSynchronize);
  World& world = TheWorld();
  Lock lock(world.mutex);
  Event* event = nullptr;
  ONEBIT_CU_TRY(FindEventToAsk(world, handle, &event));
  TheCounters().host_waits.fetch_add(1);
  const Point point = event->point;
  WaitFor(lock, point);
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  ONEBIT_BEGIN(cuLaunchHostFunc);
  return EnqueueOn(stream, FunctionOperation{function, data, false});
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags) {
  ONEBIT_BEGIN(cuStreamWaitValue32_v2);
  ONEBIT_CU_TRY(CheckWord(address));
  return EnqueueOn(stream, WaitValueOperation{reinterpret_cast<uint32_t*>(address), value, flags});
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  ONEBIT_BEGIN(cuStreamWriteValue32_v2);
  ONEBIT_CU_TRY(CheckWord(address));
  return EnqueueOn(stream, WriteValueOperation{reinterpret_cast<uint32_t*>(address), value});
}

CUresult onebitTestCudaEnqueue(CUstream stream, void (*function)(void*), void* data) {
  return EnqueueOn(stream, FunctionOperation{function, data, true});
}

size_t onebitTestCudaLiveStreams(void) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  return world.live_streams.size();
}

size_t onebitTestCudaLiveEvents(void) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  return world.live_events.size();
}
