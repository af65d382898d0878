// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/sparse_model.h"

namespace onebit::model {

using namespace kernels;
using namespace kernels::reference;

SparseModel::SparseModel(const SparseConfig& config) : config_(config) { Reset(); }

void SparseModel::Reset() {
  const size_t bytes = config_.count * BytesOf(config_.residual_type);
  worker_.assign(config_.ranks, std::vector<std::byte>(bytes));
  server_.assign(bytes, std::byte{0});
}

void SparseModel::LoadGlobalState() {
  const size_t chunks = ChunksOf(config_);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const auto rank_of = [&](size_t host) { return config_.hosts.WorkerOf(host, chunk); };
    ShareMean(config_, ModelChunk(config_.count, chunks, config_.chunk_alignment, chunk), rank_of,
              &worker_);
  }
  if (config_.is_sum) ShareSums(PartsOf(config_), config_.residual_type, &server_);
}

std::vector<float> SparseModel::worker_residual(size_t rank) const {
  return FloatsOf(worker_[rank], config_.residual_type);
}
std::vector<float> SparseModel::server_residual() const {
  return FloatsOf(server_, config_.residual_type);
}

// Returns false if there are other ranks.
bool SparseModel::CopyOne(std::span<const void* const> inputs,
                          std::span<void* const> outputs) const {
  if (config_.ranks != 1) return false;
  CopyMasked(inputs[0], config_.mask, config_.type, config_.count, outputs[0]);
  return true;
}

Draws SparseModel::DrawsOf(Piece piece) const {
  return {.seed = config_.seed,
          .first = piece.begin,
          .epoch = calls_,
          .tensor = config_.tensor_id,
          .stream = kSharedStream};
}

SparseModel::Packet SparseModel::Compress(size_t rank, Piece piece, const void* input) {
  Packet packet(config_.format.Bytes(piece.count));
  if (piece.count == 0) return packet;
  const std::vector<uint8_t> mask = MaskOfPiece(config_.mask, piece);
  void* residual = nullptr;
  if (config_.has_feedback) {
    residual = ElementAt(worker_[rank].data(), config_.residual_type, piece.begin);
  }
  const CompressInput in = {.input = input,
                            .input_type = InputTypeOf(config_),
                            .residual_in = residual,
                            .residual_out = residual,
                            .residual_type = config_.residual_type,
                            .mask = OrNull(mask),
                            .count = piece.count};
  SparseCompress(in, config_.ef_decay, config_.format, DrawsOf(piece), packet.data());
  return packet;
}

// All ranks' packets of a piece of their inputs.
std::vector<SparseModel::Packet> SparseModel::CompressAll(Piece piece,
                                                          std::span<const void* const> inputs) {
  std::vector<Packet> packets;
  for (size_t rank = 0; rank < config_.ranks; ++rank) {
    const void* const input = ElementAt(inputs[rank], InputTypeOf(config_), piece.begin);
    packets.push_back(Compress(rank, piece, input));
  }
  return packets;
}

SparseModel::Packet SparseModel::Reduce(Piece piece, const std::vector<Packet>& packets) {
  Packet mean(config_.format.Bytes(piece.count));
  if (piece.count == 0) return mean;
  if (HasHostWeights(config_)) return ReduceHostsOf(piece, packets);
  const std::vector<const void*> pointers = PointersTo(packets);
  const std::vector<uint8_t> mask = MaskOfPiece(config_.mask, piece);
  void* const residual = ServerResidualOf(piece);
  const SparseReduceInput in = {.packets = pointers.data(),
                                .ranks = packets.size(),
                                .residual_in = residual,
                                .residual_out = residual,
                                .residual_type = config_.residual_type,
                                .mask = OrNull(mask),
                                .count = piece.count,
                                .output_type = config_.type,
                                .is_sum = config_.is_sum};
  SparseReduce(in, config_.format, DrawsOf(piece), mean.data());
  return mean;
}

// The same where the packets are those of hosts that count by their ranks.
SparseModel::Packet SparseModel::ReduceHostsOf(Piece piece, const std::vector<Packet>& packets) {
  Packet mean(config_.format.Bytes(piece.count));
  const std::vector<uint8_t> mask = MaskOfPiece(config_.mask, piece);
  const std::vector<float> sum = SumOfHosts(piece, packets);
  void* const residual = ServerResidualOf(piece);
  SparseCompress({.input = sum.data(),
                  .residual_in = residual,
                  .residual_out = residual,
                  .residual_type = config_.residual_type,
                  .mask = OrNull(mask),
                  .count = piece.count,
                  .scale_type = config_.type},
                 /*ef_decay=*/1, config_.format, DrawsOf(piece), mean.data());
  return mean;
}

// The sum over ranks, or their mean, of packets of hosts.
std::vector<float> SparseModel::SumOfHosts(Piece piece, const std::vector<Packet>& packets) const {
  const std::vector<uint8_t> mask = MaskOfPiece(config_.mask, piece);
  SparseFormat biased = config_.format;  // the factor is for outputs
  biased.codec.is_unbiased = false;
  return ReduceHosts(config_, piece.count, [&](size_t host, float* values) {
    const void* const packet = packets[host].data();
    SparseAverage({.packets = &packet,
                   .ranks = 1,
                   .mask = OrNull(mask),
                   .count = piece.count,
                   .is_sum = true},
                  biased, DrawsOf(piece), values);
  });
}

void* SparseModel::ServerResidualOf(Piece piece) {
  if (!config_.has_feedback) return nullptr;
  return ElementAt(server_.data(), config_.residual_type, piece.begin);
}

void SparseModel::Average(Piece piece, const std::vector<Packet>& packets, bool is_sum,
                          void* output) const {
  if (piece.count == 0) return;
  const std::vector<const void*> pointers = PointersTo(packets);
  const std::vector<uint8_t> mask = MaskOfPiece(config_.mask, piece);
  SparseAverage({.packets = pointers.data(),
                 .ranks = packets.size(),
                 .mask = OrNull(mask),
                 .count = piece.count,
                 .output_type = config_.type,
                 .is_sum = is_sum},
                config_.format, DrawsOf(piece), output);
}

void SparseModel::AverageHosts(Piece piece, const std::vector<Packet>& packets,
                               void* output) const {
  if (piece.count == 0) return;
  std::vector<float> values = SumOfHosts(piece, packets);
  const size_t block = config_.format.block;
  for (size_t i = 0; i < piece.count && config_.format.codec.is_unbiased; ++i) {
    values[i] *= config_.format.Factor(std::min(piece.count - i / block * block, block));
  }
  StoreAll(values, config_.type, output);
}

void SparseModel::AllReduce(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  const bool has_servers = config_.hops == 2;
  const size_t chunks = has_servers ? ChunksOf(config_) : 1;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const Piece piece = has_servers
                            ? ModelChunk(config_.count, chunks, config_.chunk_alignment, chunk)
                            : Piece{0, config_.count};
    std::vector<Packet> packets = CompressAll(piece, inputs);
    if (has_servers) packets = {Reduce(piece, packets)};
    for (void* const output : outputs) {
      Average(piece, packets, has_servers || config_.is_sum,
              ElementAt(output, config_.type, piece.begin));
    }
  }
  ++calls_;
}

void SparseModel::ReduceScatter(std::span<const void* const> inputs,
                                std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  for (size_t part = 0; part < PartsOf(config_); ++part) {
    const Piece piece = PartOf(part);
    const std::vector<Packet> packets = CompressAll(piece, inputs);
    if (HasHostWeights(config_)) {
      AverageHosts(piece, packets, outputs[part]);
    } else {
      Average(piece, packets, config_.is_sum, outputs[part]);
    }
  }
  ++calls_;
}

void SparseModel::AllGather(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  for (size_t part = 0; part < config_.ranks; ++part) {
    const Piece piece = PartOf(part);
    const std::vector<Packet> packets = {Compress(part, piece, inputs[part])};
    for (void* const output : outputs) {
      Average(piece, packets, true, ElementAt(output, config_.type, piece.begin));
    }
  }
  ++calls_;
}

}  // namespace onebit::model
