// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a sweep tool says about its collective; the driver does the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "onebit/onebit.h"
#include "perf/common/elements.h"
#include "perf/common/options.h"

namespace onebit::perf {

// One row: what all ranks call.
struct Case {
  size_t count = 0;  // as the collective's argument
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitSum;
  int ranks = 1;
};

// Buffers of one rank. In place both are parts of one, which is as long as the longer of them.
struct Shape {
  size_t send_elements = 0;
  size_t recv_elements = 0;
  size_t in_place_send_offset = 0;  // elements into the common buffer
  size_t in_place_recv_offset = 0;
};

// Sums of squares over some of the elements: of what came out minus the exact result, and of the
// exact result.
struct ErrorNorm {
  double error = 0;
  double exact = 0;
};

// What a compressed row's packets depend on, as the library chose it.
struct WireFacts {
  size_t exchanges = 2;
  size_t segments = 1;  // 0: messages have no headers, so their number does not matter
};

// What one rank gives a call.
struct RankCall {
  const void* send = nullptr;
  void* recv = nullptr;
  onebitCompressor_t compressor = nullptr;  // null: dense
  onebitComm_t comm = nullptr;
  onebitStream_t stream = nullptr;  // null: the call blocks
};

// The scalar model of a row's calls, in order. It may use several threads.
class Reference {
 public:
  virtual ~Reference() = default;

  // Simulates the next call; inputs[r] is what rank r sends.
  virtual void Advance(std::span<const void* const> inputs) = 0;
  // What `rank` must have received, bit for bit, in call `call` (0 is the first).
  virtual const void* Expected(size_t call, int rank) const = 0;

  // Collects what went in and what rank 0 got out of the real collective in the last simulated call
  // ...
  virtual void Observe(std::span<const void* const> inputs, const void* output) = 0;
  // ... and counts the elements where input is neither in the output nor in a residual of the
  // model. Called once, after the last call.
  virtual uint64_t CountLostElements() = 0;
};

class Collective {
 public:
  virtual ~Collective() = default;

  virtual std::string_view tool() const = 0;  // name of the program
  virtual const char* call() const = 0;       // name of the function it measures
  // What the compressor is for.
  virtual onebitCollective_t collective() const = 0;

  virtual bool has_op() const { return true; }        // it reduces
  virtual bool has_in_place() const { return true; }  // it can be called in place
  // In how many messages a rank sends each peer its part of a dense call, if that is not cut.
  virtual size_t dense_exchanges() const { return 2; }

  // The count argument whose message has at most `bytes` bytes.
  virtual size_t CountOf(size_t bytes, onebitDataType_t type, int ranks) const = 0;
  virtual Shape ShapeOf(const Case& row, int rank) const = 0;

  // busbw = algbw * factor; and bytes each rank must send in a bandwidth-optimal dense collective.
  virtual double BusFactor(int ranks) const = 0;
  virtual double DenseOptimalBytes(size_t bytes, int ranks) const = 0;

  // Exact bytes on the wire, the largest over ranks.
  virtual uint64_t WireBound(const Case& row, const Options& options,
                             const WireFacts& facts) const = 0;

  virtual onebitResult_t Run(const Case& row, const RankCall& call) const = 0;

  // Error of `rank`'s share of the result, the shares of all ranks together being all of it.
  virtual ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs,
                            const void* output, int rank) const = 0;

  virtual std::unique_ptr<Reference> MakeReference(const Case& row,
                                                   const Options& options) const = 0;
};

// Bytes of the message a row is about: the larger of what a rank sends and receives.
size_t MessageBytes(const Shape& shape, onebitDataType_t type);

}  // namespace onebit::perf
