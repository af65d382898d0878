// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA calls of an application: current devices, streams, memory, graphs.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>
#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onebit::testing {

constexpr int kDevices = 8;

// Makes a device current in this thread; restores nothing at the end.
class UseDevice {
 public:
  explicit UseDevice(int device);
  ~UseDevice();
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator onebitStream_t() const { return stream_; }
  // Waits until all work is done.
  void Await() const;
  bool IsIdle() const;

 private:
  CUstream stream_ = nullptr;
};

// Memory of the current device.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <typename Value>
  static void Write(void* to, const std::vector<Value>& values, const Stream& stream) {
    Copy(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(values.data()),
         values.size() * sizeof(Value), stream);
  }
  template <typename Value = uint8_t>
  std::vector<Value> Read(const Stream& stream) const {
    std::vector<Value> values(bytes_ / sizeof(Value));
    Copy(reinterpret_cast<CUdeviceptr>(values.data()), memory_, values.size() * sizeof(Value),
         stream);
    return values;
  }
  template <typename Value>
  void Set(const std::vector<Value>& values, const Stream& stream) {
    Write(at(0), values, stream);
  }
  void* at(size_t offset) const { return reinterpret_cast<void*>(memory_ + offset); }

 private:
  static void Copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, const Stream& stream);

  const size_t bytes_;
  CUdeviceptr memory_ = 0;
};

// A graph of the work that `body` enqueues on `stream`.
class Graph {
 public:
  template <typename Body>
  Graph(const Stream& stream, Body body) {
    EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    body();
    End(stream);
  }
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void Launch(const Stream& stream) const;

 private:
  void End(const Stream& stream);

  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace onebit::testing
