// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA driver functions that capture streams and launch graphs.
#include <algorithm>
#include <memory>
#include <utility>

#include "tests/support/cuda/capture.h"

namespace onebit::testing::cuda {
namespace {

GraphExec* ExecOf(CUgraphExec handle) { return reinterpret_cast<GraphExec*>(handle); }
Graph* GraphOf(CUgraph handle) { return reinterpret_cast<Graph*>(handle); }

// True if the origin has waited for every stream that joined, directly or through others.
bool IsJoined(const Capture& capture) {
  std::vector<bool> is_reached(capture.graph.nodes.size(), false);
  std::vector<size_t> ahead = capture.origin->nodes;
  while (!ahead.empty()) {
    const size_t node = ahead.back();
    ahead.pop_back();
    if (is_reached[node]) continue;
    is_reached[node] = true;
    const auto& dependencies = capture.graph.nodes[node].dependencies;
    ahead.insert(ahead.end(), dependencies.begin(), dependencies.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->nodes.begin(), stream->nodes.end(),
                       [&](size_t node) { return is_reached[node]; });
  });
}

CUresult CaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                     size_t* dependency_count) {
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  // CUDA returns an error here, but the capture continues.
  if (stream->is_legacy && CaptureThatForbidsLegacy(world, *stream->context) != nullptr) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  *status = stream->capture->is_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                      : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (id != nullptr) *id = stream->capture->id;
  if (dependency_count != nullptr) *dependency_count = stream->nodes.size();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace onebit::testing::cuda

using namespace onebit::testing::cuda;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ONEBIT_BEGIN(cuThreadExchangeStreamCaptureMode);
  *mode = ExchangeCaptureMode(*mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ONEBIT_BEGIN(cuStreamBeginCapture_v2);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  static uint64_t last_id = 0;
  auto* const capture = new Capture;
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams = {stream};
  stream->capture = capture;
  stream->nodes.clear();
  world.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  ONEBIT_BEGIN(cuStreamEndCapture);
  *graph = nullptr;
  World& world = TheWorld();
  const Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, handle, &stream));
  Capture* const capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    return Invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  CUresult result = CUDA_SUCCESS;
  if (!capture->is_valid) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!IsJoined(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  } else {
    *graph = reinterpret_cast<CUgraph>(new Graph(std::move(capture->graph)));
  }
  for (Stream* member : capture->streams) {
    member->capture = nullptr;
    member->nodes.clear();
  }
  std::erase(world.captures, capture);
  delete capture;
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  ONEBIT_BEGIN(cuStreamIsCapturing);
  return CaptureInfo(handle, status, nullptr, nullptr);
}

#if CUDA_VERSION >= 12030
CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* dependency_count) {
  ONEBIT_BEGIN(cuStreamGetCaptureInfo_v3);
  // Nodes have no handles in the stand-in.
  if (graph != nullptr || dependencies != nullptr || edges != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  ONEBIT_CU_TRY(CaptureInfo(handle, status, id, dependency_count));
  return CUDA_SUCCESS;
}
#endif

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  ONEBIT_BEGIN(cuGraphInstantiateWithFlags);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  World& world = TheWorld();
  const Lock lock(world.mutex);
  world.execs.push_back(std::make_unique<GraphExec>(GraphExec{GraphOf(graph)->nodes, {}}));
  *exec = reinterpret_cast<CUgraphExec>(world.execs.back().get());
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  ONEBIT_BEGIN(cuGraphGetNodes);
  if (nodes != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *count = GraphOf(graph)->nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  ONEBIT_BEGIN(cuGraphDestroy);
  delete GraphOf(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  ONEBIT_BEGIN(cuGraphLaunch);
  World& world = TheWorld();
  Lock lock(world.mutex);
  Stream* stream = nullptr;
  ONEBIT_CU_TRY(FindStream(world, stream_handle, &stream));
  // A graph within a graph. No test needs it.
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  GraphExec* const exec = ExecOf(handle);
  EnqueueWait(lock, *stream, exec->last);
  ONEBIT_CU_TRY(Enqueue(world, lock, *stream, GraphOperation{exec}));
  exec->last = stream->tail();
  return CUDA_SUCCESS;
}

// Keeps the memory of graphs that are still running; CUDA would free it later.
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  ONEBIT_BEGIN(cuGraphExecDestroy);
  World& world = TheWorld();
  const Lock lock(world.mutex);
  std::erase_if(world.execs, [&](const auto& exec) {
    return exec.get() == ExecOf(handle) && IsReached(exec->last);
  });
  return CUDA_SUCCESS;
}
