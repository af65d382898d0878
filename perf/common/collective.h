// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A sweep tool declares its collective here; the driver does the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "onebit/onebit.h"
#include "perf/common/comm_handles.h"
#include "perf/common/seeded_elements.h"
#include "perf/common/sweep_options.h"
#include "perf/common/two_level_wire.h"

namespace onebit::perf {

struct RankState;

// The id of every compressor of a sweep, of which each rank has one at a time. Random rounding
// depends on it, so models must know it.
inline constexpr uint32_t kModelTensorId = 0;

// The counts of an all-to-all-v follow from these.
struct Ragged {
  uint32_t seed = 1;
  size_t row_elements = 1;  // counts are multiples of it
};

// One row: what all ranks call.
struct Case {
  size_t count = 0;  // as the collective's argument
  onebitDataType_t type = onebitFloat32;
  onebitRedOp_t op = onebitSum;
  int ranks = 1;
  int root = 0;  // of a collective that has one
  Ragged ragged = {};
  std::span<const uint32_t> hosts = {};  // of the ranks, if calls have two levels; borrowed
};

// The buffers of one rank. In place both are parts of one buffer, which is as long as the longer of
// them.
struct Shape {
  size_t send_elements = 0;
  size_t recv_elements = 0;
  size_t in_place_send_offset = 0;  // elements into the common buffer
  size_t in_place_recv_offset = 0;
};

// Sums of squares over some of the elements: of the difference between result and exact result, and
// of the exact result.
struct ErrorNorm {
  double error = 0;
  double exact = 0;
};

// The library's choices that the size of a row's packets depends on.
struct WireFacts {
  size_t exchanges = 2;
  size_t segments = 1;  // 0: messages have no headers, so their number does not matter
};

// The arguments of one call on one rank.
struct RankCall {
  const void* send = nullptr;
  void* recv = nullptr;
  onebitCompressor_t compressor = nullptr;  // null: dense
  onebitComm_t comm = nullptr;
  onebitStream_t stream = nullptr;        // null: the call blocks
  onebitCompressor_t receiver = nullptr;  // of the receive, if `compressor` is that of a send
};

// The scalar model of a row's calls, in order. It may use several threads.
class Reference {
 public:
  virtual ~Reference() = default;

  // Simulates the next call; inputs[r] is what rank r sends.
  virtual void Advance(std::span<const void* const> inputs) = 0;
  // The exact bytes that `rank` must have received in call `call`; 0 is the first.
  virtual const void* Expected(size_t call, int rank) const = 0;

  // Collects the inputs and rank 0's output of the last simulated call, ...
  virtual void Observe(std::span<const void* const> inputs, const void* output) = 0;
  // ... and counts the elements whose input is neither in an output nor in a residual of the model.
  // Called once, after the last call.
  virtual uint64_t CountLostElements() = 0;
};

class Collective {
 public:
  virtual ~Collective() = default;

  virtual std::string_view tool() const = 0;  // name of the program
  virtual const char* call() const = 0;       // name of the function it measures
  // The collective that compressors are created for; none if all calls are dense.
  virtual std::optional<onebitCollective_t> collective() const = 0;

  // Gives a rank what it keeps between the calls of a row: a compressor with fresh residuals, or
  // nothing in mode dense.
  virtual void Prepare(const Case& row, const Options& options, RankState& state) const;
  // Forgets earlier calls of the row.
  virtual void Reset(RankState& state) const;

  virtual bool has_op() const { return true; }        // it reduces
  virtual bool has_in_place() const { return true; }  // it can be called in place
  virtual bool has_root() const { return false; }
  virtual bool is_ragged() const { return false; }  // every pair of ranks has a count of its own
  // The number of messages in which a rank sends each peer its part of a dense call that is not
  // segmented, in one level.
  virtual size_t dense_exchanges() const { return 2; }
  // The messages of its calls in two levels; none if all have one.
  virtual std::optional<TwoLevelCall> two_level_call() const { return std::nullopt; }

  // The count argument whose message has at most `bytes` bytes.
  virtual size_t CountOf(size_t bytes, onebitDataType_t type, int ranks) const = 0;
  virtual Shape ShapeOf(const Case& row, int rank) const = 0;

  // The size of a row, as it is reported and as bandwidths are computed from it.
  virtual size_t BytesOf(const Case& row) const;
  // The count that compressors are created with.
  virtual size_t CompressorCount(const Case& row) const { return row.count; }

  // BusFactor: busbw = algbw * factor. DenseOptimalBytes: what each rank must send in a bandwidth-
  // optimal dense collective, the largest over ranks.
  virtual double BusFactor(int ranks) const = 0;
  virtual double DenseOptimalBytes(const Case& row) const {
    return BusFactor(row.ranks) * static_cast<double>(BytesOf(row));
  }

  // Exact bytes on the wire, the largest over ranks. Only asked if sent bytes are counted, and
  // calls have one level.
  virtual uint64_t WireBound(const Case& /*row*/, const Options& /*options*/,
                             const WireFacts& /*facts*/) const {
    return 0;
  }

  virtual onebitResult_t Run(const Case& row, const RankCall& call) const = 0;

  // The error of `rank`'s share of the result. The shares of all ranks cover all of it.
  virtual ErrorNorm ErrorOf(const Case& row, std::span<const SeededInput> inputs,
                            const void* output, int rank) const = 0;

  virtual std::unique_ptr<Reference> MakeReference(const Case& row,
                                                   const Options& options) const = 0;
  // Calls of one check pass: compressed results depend on residuals from the second call on.
  virtual int CheckedCalls(const Options& options) const { return options.is_compressed() ? 3 : 1; }
  // The input of a rank in a checked call.
  virtual void FillChecked(void* values, size_t count, onebitDataType_t type, uint64_t seed,
                           int rank) const {
    FillSeeded(values, count, type, seed, rank);
  }

 protected:
  // Prepare and Reset call these for each compressor.
  CompressorHandle NewCompressor(const Case& row, const Options& options, const RankState& state,
                                 uint32_t tensor_id) const;
  static void ResetCompressor(const CompressorHandle& compressor);
};

// Reduces the elements `i` of all ranks. Sums of floats are exact but for the rounding of fp64.
double ExactResult(const Case& row, std::span<const SeededInput> inputs, size_t i);

// The size of a row's message: the larger of what a rank sends and receives.
size_t MessageBytes(const Shape& shape, onebitDataType_t type);

}  // namespace onebit::perf
