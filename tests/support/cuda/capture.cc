// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda/capture.h"

#include <algorithm>
#include <utility>

namespace onebit::testing::cuda {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// True if the modes of the calling thread and of `capture` allow the thread to break the capture.
bool IsConfused(const Capture& capture) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id()) {
    return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  }
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void AddMissing(const std::vector<size_t>& from, std::vector<size_t>* to) {
  for (const size_t node : from) {
    if (std::find(to->begin(), to->end(), node) == to->end()) to->push_back(node);
  }
}

}  // namespace

CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

CUresult CheckUnsafe(World& world) {
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : world.captures) {
    if (IsConfused(*capture)) {
      result = Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return result;
}

bool IsThreadCapturing(World& world) {
  return std::any_of(world.captures.begin(), world.captures.end(), [](const Capture* capture) {
    return capture->thread == std::this_thread::get_id();
  });
}

CUresult Invalidate(Capture& capture, CUresult error) {
  capture.is_valid = false;
  return error;
}

Capture* CaptureThatForbidsLegacy(World& world, const Context& context) {
  for (Capture* capture : world.captures) {
    for (const Stream* stream : capture->streams) {
      if (stream->is_blocking && stream->context == &context) return capture;
    }
  }
  return nullptr;
}

CUresult AddNode(Stream& stream, const Operation& operation) {
  Capture& capture = *stream.capture;
  if (!capture.is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture.graph.nodes.push_back({operation, stream.nodes});
  stream.nodes = {capture.graph.nodes.size() - 1};
  return CUDA_SUCCESS;
}

CUresult WaitCaptured(World& world, Stream& stream, const Event& event) {
  if (event.capture == 0) {
    // The graph cannot know of this work. An event that was never recorded stands for no work.
    if (event.point.stream == nullptr) return CUDA_SUCCESS;
    return Invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  Capture* const capture = FindCapture(world, event.capture);
  if (capture == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (!capture->is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.is_legacy) return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (stream.capture == nullptr) {
    stream.capture = capture;
    stream.nodes.clear();
    capture->streams.push_back(&stream);
  } else if (stream.capture != capture) {
    Invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  AddMissing(event.nodes, &stream.nodes);
  return CUDA_SUCCESS;
}

Capture* FindCapture(World& world, uint64_t id) {
  for (Capture* capture : world.captures) {
    if (capture->id == id) return capture;
  }
  return nullptr;
}

}  // namespace onebit::testing::cuda
