// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar model of compressed reduce-scatter, all-gather and all-to-all on simulated ranks. It uses
// only kernels::reference and knows no transport, segment or plan.
#pragma once

#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "onebit/onebit.h"
#include "perf/common/host_layout.h"
#include "tests/support/chunk_calls.h"
#include "tests/support/tensor.h"

namespace onebit::testing {

struct ChunkCase {
  onebitCollective_t collective = onebitCollectiveReduceScatter;
  size_t ranks = 1;
  size_t count = 0;  // as in the call
  kernels::DataType type = kernels::DataType::kF32;
  bool is_sum = false;
  bool has_feedback = true;
  kernels::ScaleRule rule = kernels::ScaleRule::kL2;
  uint32_t block = 4096;
  kernels::DataType residual_type = kernels::DataType::kF32;
  bool is_transactional = true;
  std::vector<uint8_t> mask;  // of ranks * count elements
  bool is_in_place = false;
  size_t offset_elements = 0;
  // A reduce-scatter in two levels has hosts (model_pieces.h); its block is not 0.
  model::HostLayout hosts = {};

  // Ranks compress what they have, or in two levels what their hosts have.
  size_t workers() const { return hosts.empty() ? ranks : hosts.hosts(); }
  size_t elements() const { return ranks * count; }
  size_t send_count() const { return count * SendParts(collective, ranks); }
  size_t receive_count() const { return count * ReceiveParts(collective, ranks); }
  // Points into this case, which must outlive it.
  onebitCompressorConfig_t config() const;
};
std::ostream& operator<<(std::ostream& out, const ChunkCase& c);

// Draws every option at random except the collective, the ranks and the count.
ChunkCase RandomChunkCase(onebitCollective_t collective, size_t ranks, size_t count,
                          std::mt19937& random);

// Random inputs for all ranks.
std::vector<Tensor> RandomInputs(const ChunkCase& c, std::mt19937& random);

class ChunkModel {
 public:
  explicit ChunkModel(const ChunkCase& c);

  // Simulates one call. Returns what every rank receives. Inputs are those of workers; in two
  // levels the means of hosts in fp32.
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs);

  // Sets the mask of later calls.
  void SetMask(std::vector<uint8_t> mask);
  // Makes `values` what all ranks of an all-gather hold.
  void Hold(std::span<const float> values);
  // Sets all residuals to zero.
  void Reset();
  // Continues as from a state of all ranks.
  void LoadGlobalState();

  // All elements of the tensor in fp32; in an all-gather the shared estimate, negated.
  std::vector<float> residual(size_t worker) const;

 private:
  struct Packet {
    std::vector<float> scales;
    std::vector<uint8_t> bits;
  };

  kernels::CompressInput InputOf(size_t worker, size_t chunk, const Tensor& input);
  Packet Compress(size_t worker, size_t chunk, const Tensor& input);
  std::vector<Packet> CompressTensor(size_t worker, const Tensor& input);
  void ReduceHostsOf(const std::vector<std::vector<Packet>>& packets, size_t chunk,
                     Tensor& output) const;
  void ReduceScatter(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  void AllGather(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  void AllToAll(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  const uint8_t* MaskOf(size_t chunk) const {
    return masks_.empty() ? nullptr : masks_[chunk].data();
  }
  std::byte* ElementAt(Tensor& tensor, size_t i) const {
    return tensor.data() + i * kernels::BytesOf(case_.type);
  }

  ChunkCase case_;
  std::vector<std::vector<uint8_t>> masks_;        // by chunk
  std::vector<std::vector<std::byte>> residuals_;  // by worker
};

}  // namespace onebit::testing
