// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar model of a whole allreduce over simulated ranks: the oracle of collectives, for tests and
// checkers. It is built on kernels::reference only and knows no transport, packet or segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/types.h"
#include "perf/common/host_layout.h"

namespace onebit::model {

struct AllReduceConfig {
  size_t ranks = 1;
  size_t count = 0;
  kernels::DataType type = kernels::DataType::kF32;
  bool is_sum = false;       // false: mean over ranks, true: sum
  bool has_feedback = true;  // mode ef; false: mode sign, nothing is remembered
  kernels::ScaleRule rule = kernels::ScaleRule::kL2;
  size_t block = 4096;  // elements per scale; 0: one scale per rank and one per chunk
  size_t chunk_alignment = 64;
  bool has_server_residual = true;  // false: error feedback on the worker side only
  kernels::DataType residual_type = kernels::DataType::kF32;
  bool is_transactional = true;  // false: a non-finite call sets all residuals to zero
  std::vector<uint8_t> mask;     // empty: all elements take part; otherwise one bit per element
  std::vector<size_t> cuts;      // elements at which blocks restart, ascending; block > 0
  size_t threads = 1;            // the simulated ranks share these; the result is the same
  HostLayout hosts = {};         // two levels (model_pieces.h); block > 0
};

// Returns the elements [begin, end) that `rank` reduces. Chunks have equal padded length, the
// smallest multiple of `alignment` with ranks * length >= count, so the last ones may be short or
// empty.
struct ChunkRange {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};
ChunkRange ChunkOf(size_t count, size_t ranks, size_t alignment, size_t rank);

class AllReduceModel {
 public:
  explicit AllReduceModel(AllReduceConfig config);

  // Simulates one call of all ranks. inputs[r] and output have config.count elements of
  // config.type, or with two levels inputs[g] of fp32; output overlaps no input. Returns false if a
  // value was not finite: output is then all NaN and the residuals are unchanged. With one rank it
  // copies the input, changes no residual and returns true.
  bool Run(std::span<const void* const> inputs, void* output);

  // Sets all residuals to zero.
  void Reset();

  // Sets the mask of later calls. The next call drops the residuals of elements that leave.
  void SetMask(std::vector<uint8_t> mask);

  // Continues as from a state of all ranks (STATE.md): with the mean of the worker residuals.
  void LoadGlobalState();

  // The model of the same tensor on other ranks, in one level: rank i continues with the worker
  // residual of rank survivors[i]. Server residuals are kept, except for the chunks of ranks that
  // are not survivors: those are zero unless every rank had all chunks. For sums they grow as the
  // number of ranks shrinks.
  AllReduceModel Rebound(std::span<const size_t> survivors, bool has_every_rank_all_chunks) const;

  // The elements whose server residual Rebound sets to zero.
  size_t LostElements(std::span<const size_t> survivors, bool has_every_rank_all_chunks) const;

  // Residuals as fp32, config.count elements; all zero in mode sign. The server residual covers all
  // chunks in order.
  std::vector<float> worker_residual(size_t rank) const;
  std::vector<float> server_residual() const;

 private:
  using Bytes = std::vector<std::byte>;

  // Everything one rank or one server sends about the elements it compressed.
  struct Packet {
    std::vector<float> scales;
    std::vector<uint8_t> bits;
  };

  bool CopyMasked(const void* input, void* output) const;
  bool CompressWorker(size_t rank, const void* input);
  bool ReducePiece(size_t piece);
  bool ReduceHostsOf(size_t piece);
  void DecodePiece(size_t piece, void* output) const;
  ChunkRange Chunk(size_t chunk) const;
  size_t ScaleCount(size_t piece) const;
  const uint8_t* MaskOf(size_t piece) const;

  AllReduceConfig config_;
  std::vector<ChunkRange> pieces_;           // the chunks, cut
  std::vector<std::vector<uint8_t>> masks_;  // [piece]; empty without a mask
  // [rank][piece] and [piece]: packets of the current call, as after phase 1 and phase 2.
  std::vector<std::vector<Packet>> worker_packets_;
  std::vector<Packet> server_packets_;
  // Committed residuals and those of the current call, in config.residual_type. [rank] and all
  // chunks.
  std::vector<Bytes> worker_, worker_next_;
  Bytes server_, server_next_;
};

// Dense allreduce: DenseReduce in rank order. output may equal an input.
void DenseAllReduce(std::span<const void* const> inputs, size_t count, kernels::DataType type,
                    kernels::DenseOp op, void* output);
// The same in two levels.
void DenseAllReduceOnHosts(const HostLayout& hosts, std::span<const void* const> inputs,
                           size_t count, kernels::DataType type, kernels::DenseOp op, void* output);

}  // namespace onebit::model
