// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar model of collectives with a code for each element over simulated ranks, for tests and
// checkers. It is built on kernels::reference only and knows no transport, plan or segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/low_bit.h"
#include "perf/common/model_pieces.h"

namespace onebit::model {

// The model computes by these: the functions of kernels/low_bit.h, or others of the same kind,
// which ignore blocks or draws if their codec has none.
struct CodeFunctions {
  kernels::LowBitResult (*compress)(const kernels::CompressInput& in, kernels::LowBitFormat format,
                                    const kernels::Draws& draws, kernels::LowBitPacket out);
  kernels::LowBitResult (*reduce)(const kernels::LowBitReduceInput& in,
                                  kernels::LowBitFormat format, const kernels::Draws& draws,
                                  kernels::LowBitPacket out);
  kernels::LowBitResult (*average)(const kernels::LowBitReduceInput& in,
                                   kernels::LowBitFormat format, void* output);
  kernels::LowBitResult (*add_delta)(const kernels::LowBitDeltaInput& in,
                                     kernels::LowBitFormat format, void* output);

  kernels::LowBitResult Decode(kernels::LowBitPacketView packet, kernels::LowBitFormat format,
                               size_t count, const uint8_t* mask, kernels::DataType type,
                               void* output) const {
    return average({.packets = &packet,
                    .ranks = 1,
                    .mask = mask,
                    .count = count,
                    .output_type = type,
                    .is_sum = true},
                   format, output);
  }
};
inline constexpr CodeFunctions kLowBitFunctions = {
    kernels::reference::LowBitCompress, kernels::reference::LowBitReduce,
    kernels::reference::LowBitAverage, kernels::reference::LowBitAddDelta};

struct LowBitConfig {
  size_t ranks = 1;
  size_t count = 0;  // elements as the call counts them
  kernels::DataType type = kernels::DataType::kF32;
  kernels::LowBitFormat format;
  size_t code_bits = 0;  // 0: those of `format`
  const CodeFunctions* functions = &kLowBitFunctions;
  bool is_sum = false;       // of an allreduce or a reduce-scatter
  bool has_feedback = true;  // mode ef; false: mode plain
  size_t chunk_alignment = 64;
  bool has_server_residual = true;
  kernels::DataType residual_type = kernels::DataType::kF32;
  // Empty: all elements take part. Otherwise one for each element of the tensor: that of the
  // allreduce, else of all `ranks * count`.
  std::vector<bool> mask;
  uint64_t seed = 0;
  uint32_t tensor_id = 0;
  HostLayout hosts = {};  // two levels (model_pieces.h)
};

// Results of one call of all ranks: outputs[r] is rank r's. With more than one rank and feedback
// all inputs and results must be finite. A rank by itself gets its input.
class LowBitModel {
 public:
  explicit LowBitModel(const LowBitConfig& config);

  void AllReduce(std::span<const void* const> inputs, std::span<void* const> outputs);
  void ReduceScatter(std::span<const void* const> inputs, std::span<void* const> outputs);
  void AllGather(std::span<const void* const> inputs, std::span<void* const> outputs);
  void AllToAll(std::span<const void* const> inputs, std::span<void* const> outputs);

  // The elements of the longest tensor, as its mask counts them.
  size_t elements() const { return PartsOf(config_) * config_.count; }
  // Sets the mask of later calls.
  void SetMask(std::vector<bool> mask) { config_.mask = std::move(mask); }
  // Makes `values` what all ranks of an all-gather hold.
  void Hold(std::span<const float> values);
  // Sets all residuals to zero.
  void Reset();
  // Continues as from a state of all ranks (STATE.md), of a reduce-scatter if it has parts, else of
  // an allreduce. Not for an all-gather, whose ranks all hold what the state has.
  void LoadGlobalState(bool has_parts);

  // Residuals in fp32; zero without feedback. The worker's has all elements of the tensor; in an
  // all-gather it is what all ranks hold, negated. The server's covers all chunks of an allreduce.
  std::vector<float> worker_residual(size_t rank) const;
  std::vector<float> server_residual() const;

 private:
  struct Packet {
    std::vector<uint16_t> scales;
    std::vector<uint16_t> minimums;
    std::vector<uint8_t> codes;
    kernels::LowBitPacketView view() const {
      return {scales.data(), minimums.data(), codes.data()};
    }
  };
  using Piece = ModelPiece;

  bool CopyOne(std::span<const void* const> inputs, std::span<void* const> outputs) const;
  Piece PieceOf(size_t chunk) const;  // of an allreduce
  Piece PartOf(size_t part) const;    // of the others
  kernels::Draws DrawsOf(Piece piece, size_t stream) const;
  // `input` is where the piece begins, `stream` that of its draws.
  Packet Compress(size_t rank, Piece piece, const void* input, kernels::DataType value_type,
                  bool keeps, size_t stream);
  // The packets of a piece of all inputs, of which worker_of(i) compresses input `i`.
  template <class WorkerOf>
  std::vector<Packet> CompressAll(Piece piece, std::span<const void* const> inputs,
                                  const WorkerOf& worker_of);
  Packet Reduce(size_t chunk, Piece piece, const std::vector<Packet>& packets);
  Packet ReduceHostsOf(size_t chunk, Piece piece, const std::vector<Packet>& packets);
  std::vector<float> SumOfHosts(Piece piece, const std::vector<Packet>& packets) const;
  std::byte* ServerResidualOf(Piece piece);  // null if there is none
  Packet Encode(const kernels::CompressInput& in, const kernels::Draws& draws) const;
  void Decode(const Packet& packet, Piece masked_as, void* output) const;
  // The mask of a piece as kernels take it; empty without one.
  std::vector<uint8_t> MaskOf(Piece piece) const;
  Packet NewPacket(size_t count) const;

  LowBitConfig config_;
  std::vector<std::vector<std::byte>> worker_;  // by rank
  std::vector<std::byte> server_;
  uint32_t calls_ = 0;
};

}  // namespace onebit::model
