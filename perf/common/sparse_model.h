// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar model of collectives with a sparse codec over simulated ranks, for tests and checkers. It
// is built on kernels::reference only and knows no transport, plan or segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/sparse.h"
#include "perf/common/model_pieces.h"

namespace onebit::model {

struct SparseConfig {
  size_t ranks = 1;
  size_t count = 0;  // elements as the call counts them
  kernels::DataType type = kernels::DataType::kF32;
  kernels::SparseFormat format;
  int hops = 1;              // of an allreduce
  bool is_sum = false;       // of an allreduce or a reduce-scatter
  bool has_feedback = true;  // of an allreduce
  float ef_decay = 1;
  size_t chunk_alignment = 64;
  kernels::DataType residual_type = kernels::DataType::kF32;
  // Empty: all elements take part. Otherwise one for each element of the tensor: that of the
  // allreduce, else of all `ranks * count`.
  std::vector<bool> mask;
  uint64_t seed = 0;
  uint32_t tensor_id = 0;
  HostLayout hosts = {};  // two levels (model_pieces.h); an allreduce has two hops
};

// Results of one call of all ranks: outputs[r] is rank r's. With feedback all inputs and results
// must be finite. A rank by itself gets its input.
class SparseModel {
 public:
  explicit SparseModel(const SparseConfig& config);

  void AllReduce(std::span<const void* const> inputs, std::span<void* const> outputs);
  void ReduceScatter(std::span<const void* const> inputs, std::span<void* const> outputs);
  void AllGather(std::span<const void* const> inputs, std::span<void* const> outputs);

  // The elements of the longest tensor, as its mask counts them.
  size_t elements() const { return PartsOf(config_) * config_.count; }
  // Sets the mask of later calls.
  void SetMask(std::vector<bool> mask) { config_.mask = std::move(mask); }
  // Counts a call in full precision, after which nothing is owed.
  void Prime() {
    Reset();
    ++calls_;
  }
  // Sets all residuals to zero.
  void Reset();
  // Continues as from a state of all ranks (STATE.md) of an allreduce; others have no residual.
  void LoadGlobalState();

  // Residuals of an allreduce in fp32; zero without feedback. The server's covers all chunks.
  std::vector<float> worker_residual(size_t rank) const;
  std::vector<float> server_residual() const;

 private:
  using Packet = std::vector<std::byte>;
  using Piece = ModelPiece;

  bool CopyOne(std::span<const void* const> inputs, std::span<void* const> outputs) const;
  Piece PartOf(size_t part) const { return {part * config_.count, config_.count}; }
  kernels::Draws DrawsOf(Piece piece) const;
  // `input` is where the piece begins.
  Packet Compress(size_t rank, Piece piece, const void* input);
  std::vector<Packet> CompressAll(Piece piece, std::span<const void* const> inputs);
  Packet Reduce(Piece piece, const std::vector<Packet>& packets);
  Packet ReduceHostsOf(Piece piece, const std::vector<Packet>& packets);
  std::vector<float> SumOfHosts(Piece piece, const std::vector<Packet>& packets) const;
  void* ServerResidualOf(Piece piece);  // null if there is none
  // The sum or the mean of packets, which is written to where the piece begins.
  void Average(Piece piece, const std::vector<Packet>& packets, bool is_sum, void* output) const;
  // The same where the packets are those of hosts that count by their ranks.
  void AverageHosts(Piece piece, const std::vector<Packet>& packets, void* output) const;

  SparseConfig config_;
  std::vector<std::vector<std::byte>> worker_;  // by rank
  std::vector<std::byte> server_;
  uint32_t calls_ = 0;
};

}  // namespace onebit::model
