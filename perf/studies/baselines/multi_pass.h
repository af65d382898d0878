// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compressed allreduce as frameworks compose it, modelled on DeepSpeed's back ends: each tensor
// operation is a pass over the whole tensor, and a call makes four collectives. There is one scale
// per rank and one per chunk, and the zeros that pad a tensor count in them. Frozen: a yardstick
// does not change with what it measures.
//
// It is faster than its model: nothing is allocated in a call, passes are vectorised, and signs
// become a float tensor in one pass instead of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "perf/common/comm_handles.h"

namespace onebit::perf {

// The collectives that a call uses.
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

  // Computes the sum, one bit per element and direction. May be in place.
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

// Returns the elements of a chunk: a share of the tensor, rounded up to the width of the passes.
size_t MultiPassChunk(size_t count, int ranks);

}  // namespace onebit::perf
