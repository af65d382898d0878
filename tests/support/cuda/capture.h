// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Captures streams into graphs, and checks what a capture forbids.
#pragma once

#include <thread>
#include <vector>

#include "tests/support/cuda/stand_in_stream.h"

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
  std::vector<Stream*> streams;  // all streams in the capture, the origin first
  bool is_valid = true;
  Graph graph;
};

// Sets the calling thread's mode towards captures, and returns the former one.
CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode);

// Checks a call that a capture cannot record, such as an allocation. If CUDA's rules for the
// thread's mode forbid it, returns an error and breaks the captures that it affects. Requires the
// lock.
CUresult CheckUnsafe(World& world);
// True if the calling thread has begun a capture that has not ended. Requires the lock.
bool IsThreadCapturing(World& world);

// Breaks a capture, whose end will then return no graph. Returns `error`.
CUresult Invalidate(Capture& capture, CUresult error);
// Returns the capture of a blocking stream that forbids use of its context's legacy stream; null if
// there is none.
Capture* CaptureThatForbidsLegacy(World& world, const Context& context);

// Adds a node to the stream's capture.
CUresult AddNode(Stream& stream, const Operation& operation);
// Implements cuStreamWaitEvent for a stream or event that belongs to a capture.
CUresult WaitCaptured(World& world, Stream& stream, const Event& event);
// Returns the capture with this number if it has not ended.
Capture* FindCapture(World& world, uint64_t id);

}  // namespace onebit::testing::cuda
