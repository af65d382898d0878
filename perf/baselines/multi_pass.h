// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compressed allreduce the way frameworks compose it, after the shape of DeepSpeed's back ends:
// each tensor operation is a pass over the whole tensor, and a call makes four collectives. There
// are one scale per rank and one per chunk, and the zeros that pad a tensor count in them.
//
// It is kinder than what it stands for: nothing is allocated in a call, passes are vectorised, and
// signs become a float tensor in one pass instead of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "perf/common/handles.h"

namespace onebit::perf {

// What the calls use to talk.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // Each rank sends `bytes` to each, by rank.
  virtual void AllToAll(const void* send, void* recv, size_t bytes) = 0;
  virtual void AllGather(const void* mine, void* all, size_t bytes) = 0;
};

// One tensor and its residuals on one rank.
class MultiPassAllReduce {
 public:
  // Residuals are zero. `exchange` is borrowed.
  MultiPassAllReduce(Exchange& exchange, size_t count);

  // The sum, one bit per element and direction. May be in place.
  void Call(const float* send, float* recv);

  void Reset();

 private:
  void CompressInput(const float* send);
  void ReduceChunk();
  void Decode(float* recv);

  float* floats(Buffer& buffer) const { return reinterpret_cast<float*>(buffer.data()); }
  uint8_t* bytes(Buffer& buffer) const { return reinterpret_cast<uint8_t*>(buffer.data()); }

  Exchange& exchange_;
  const size_t count_;
  const size_t chunk_;   // elements that one rank serves
  const size_t padded_;  // chunk times ranks

  // Tensors of padded_ elements, and of one chunk.
  Buffer input_, worker_error_, compensated_, signs_, decoded_;
  Buffer server_sum_, server_error_;
  // Signs as bits.
  Buffer sent_bits_, received_bits_, server_bits_, result_bits_;
  Buffer worker_scales_, server_scales_;  // one per rank
  float worker_scale_ = 0;
  float server_scale_ = 0;
};

// Elements of a chunk: a share of the tensor, and a multiple of what the passes take at a time.
size_t MultiPassChunk(size_t count, int ranks);

}  // namespace onebit::perf
