// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Capture of streams into graphs, and what it forbids.
#pragma once

#include <thread>
#include <vector>

#include "tests/support/cuda/stream.h"

namespace onebit::testing::cuda {

struct GraphNode {
  Operation operation;
  std::vector<size_t> dependencies;  // numbers of earlier nodes
};

struct Graph {
  std::vector<GraphNode> nodes;
};

struct GraphExec {
  std::vector<GraphNode> nodes;
  Point last;  // a graph runs once at a time
};

struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;  // all that take part, the origin first
  bool is_valid = true;
  Graph graph;
};

// How the calling thread wants to be treated while anybody captures.
CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode);

// For calls that a capture does not see, such as an allocation: an error, and the end of the
// captures that it would confuse, where CUDA's rules for the thread's mode forbid it. Under the
// lock.
CUresult CheckUnsafe(World& world);
// Whether the calling thread has begun a capture that goes on. Under the lock.
bool IsThreadCapturing(World& world);

// Breaks a capture: its end will return no graph. Returns `error`.
CUresult Invalidate(Capture& capture, CUresult error);
// The legacy stream may not be used while a blocking stream of its context is captured.
Capture* CaptureThatForbidsLegacy(World& world, const Context& context);

// Adds a node to the stream's capture.
CUresult AddNode(Stream& stream, const Operation& operation);
// cuStreamWaitEvent where the stream or the event belongs to a capture.
CUresult WaitCaptured(World& world, Stream& stream, const Event& event);
// The capture with this number if it goes on.
Capture* FindCapture(World& world, uint64_t id);

}  // namespace onebit::testing::cuda
