// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar models of the collectives whose buffers have one chunk per rank. They are built on
// kernels::reference only and know no transport, plan or segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "perf/common/model_pieces.h"

namespace onebit::model {

struct ChunksConfig {
  size_t ranks = 1;
  size_t count = 0;  // elements of a chunk
  kernels::DataType type = kernels::DataType::kF32;
  bool is_sum = false;       // of a reduce-scatter
  bool has_feedback = true;  // mode ef; false: mode sign
  kernels::ScaleRule rule = kernels::ScaleRule::kL2;
  size_t block = 4096;    // elements per scale; 0: one for all that a rank compresses at a time
  HostLayout hosts = {};  // of a reduce-scatter in two levels (model_pieces.h); block > 0

  size_t elements() const { return PartsOf(*this) * count; }
};

// The packet of one chunk.
struct ChunkPacket {
  std::vector<float> scales;
  std::vector<uint8_t> bits;
};

// Compresses chunks of `config.count` elements, each with a residual of its own. Scales are rounded
// to `scale_type`. A scale per tensor covers all chunks of a call.
class ChunkCompressor {
 public:
  ChunkCompressor(const ChunksConfig& config, size_t chunks, kernels::DataType scale_type);

  // Returns a packet for each chunk; `input` has the chunks one after the other.
  std::vector<ChunkPacket> Run(const void* input);
  // The residuals of all chunks in fp32; zero in mode sign.
  const std::vector<float>& residual() const { return residual_; }

 private:
  const ChunksConfig config_;
  const size_t chunks_;
  const kernels::DataType scale_type_;
  std::vector<float> residual_;
};

// Results of one call of all ranks; outputs[r] is rank r's. With one rank outputs are inputs. All
// inputs and results must be finite.
class ReduceScatterModel {
 public:
  explicit ReduceScatterModel(const ChunksConfig& config);
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs);
  const std::vector<float>& residual(size_t rank) const { return compressors_[rank].residual(); }

 private:
  const ChunksConfig config_;
  std::vector<ChunkCompressor> compressors_;
};

// Chunk j of rank r's output is chunk r of rank j's input; its own is not compressed.
class AllToAllModel {
 public:
  explicit AllToAllModel(const ChunksConfig& config);
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs);
  // The compressor of what `from` sends `to`.
  std::span<const float> residual(size_t from, size_t to) const;

 private:
  const ChunksConfig config_;
  std::vector<ChunkCompressor> compressors_;  // [from * ranks + to]
};

// With feedback, packets carry the difference between the input and what all ranks already hold of
// it.
class AllGatherModel {
 public:
  explicit AllGatherModel(const ChunksConfig& config);
  void Run(std::span<const void* const> inputs, void* output);
  // The estimate that every rank holds, in rank order; zero in mode sign.
  std::vector<float> held() const;

 private:
  void RunDelta(size_t rank, const void* input, std::byte* output);

  const ChunksConfig config_;
  std::vector<float> negated_;  // what is held
};

}  // namespace onebit::model
