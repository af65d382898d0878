// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/low_bit_model.h"

#include <algorithm>
#include <cstring>

#include "kernels/reference/elements.h"

namespace onebit::model {

using namespace kernels;
using namespace kernels::reference;

namespace {

constexpr size_t kServerStream = 65'536;

}  // namespace

LowBitModel::LowBitModel(const LowBitConfig& config) : config_(config) { Reset(); }

void LowBitModel::Reset() {
  const size_t bytes = BytesOf(config_.residual_type);
  // The longest tensor of any collective: an allreduce leaves the rest of it alone.
  worker_.assign(config_.ranks, std::vector<std::byte>(elements() * bytes));
  server_.assign(config_.count * bytes, std::byte{0});
}

void LowBitModel::Hold(std::span<const float> values) {
  for (auto& worker : worker_) {
    for (size_t i = 0; i < values.size(); ++i) {
      StoreElement(0 - values[i], config_.residual_type, i, worker.data());
    }
  }
}

void LowBitModel::LoadGlobalState(bool has_parts) {
  const HostLayout& hosts = config_.hosts;
  for (size_t chunk = 0; chunk < (has_parts ? PartsOf(config_) : ChunksOf(config_)); ++chunk) {
    const auto rank_of = [&](size_t host) {
      return has_parts ? hosts.PartnerOn(host, chunk) : hosts.WorkerOf(host, chunk);
    };
    ShareMean(config_, has_parts ? PartOf(chunk) : PieceOf(chunk), rank_of, &worker_);
  }
  if (config_.is_sum) ShareSums(PartsOf(config_), config_.residual_type, &server_);
}

std::vector<float> LowBitModel::worker_residual(size_t rank) const {
  return FloatsOf(worker_[rank], config_.residual_type);
}
std::vector<float> LowBitModel::server_residual() const {
  return FloatsOf(server_, config_.residual_type);
}

// Returns false if there are other ranks.
bool LowBitModel::CopyOne(std::span<const void* const> inputs,
                          std::span<void* const> outputs) const {
  if (config_.ranks != 1) return false;
  CopyMasked(inputs[0], config_.mask, config_.type, config_.count, outputs[0]);
  return true;
}

LowBitModel::Piece LowBitModel::PieceOf(size_t chunk) const {
  return ModelChunk(config_.count, ChunksOf(config_), config_.chunk_alignment, chunk);
}

LowBitModel::Piece LowBitModel::PartOf(size_t part) const {
  return {part * config_.count, config_.count};
}

std::vector<uint8_t> LowBitModel::MaskOf(Piece piece) const {
  return MaskOfPiece(config_.mask, piece);
}

LowBitModel::Packet LowBitModel::NewPacket(size_t count) const {
  const size_t blocks = BlockCount(count, config_.format.block);
  const size_t bits = config_.code_bits != 0 ? config_.code_bits : CodeBits(config_.format.codec);
  return {.scales = std::vector<uint16_t>(blocks),
          .minimums = std::vector<uint16_t>(HasMinimum(config_.format.codec) ? blocks : 0),
          .codes = std::vector<uint8_t>((count * bits + 7) / 8)};
}

Draws LowBitModel::DrawsOf(Piece piece, size_t stream) const {
  return {.seed = config_.seed,
          .first = piece.begin,
          .epoch = calls_,
          .tensor = config_.tensor_id,
          .stream = static_cast<uint32_t>(stream)};
}

LowBitModel::Packet LowBitModel::Encode(const CompressInput& in, const Draws& draws) const {
  Packet packet = NewPacket(in.count);
  config_.functions->compress(in, config_.format, draws,
                              {packet.scales.data(), packet.minimums.data(), packet.codes.data()});
  return packet;
}

LowBitModel::Packet LowBitModel::Compress(size_t rank, Piece piece, const void* input,
                                          DataType value_type, bool keeps, size_t stream) {
  if (piece.count == 0) return NewPacket(0);
  const std::vector<uint8_t> mask = MaskOf(piece);
  std::byte* const residual = ElementAt(worker_[rank].data(), config_.residual_type, piece.begin);
  return Encode({.input = input,
                 .input_type = InputTypeOf(config_),
                 .residual_in = config_.has_feedback ? residual : nullptr,
                 .residual_out = config_.has_feedback && keeps ? residual : nullptr,
                 .residual_type = config_.residual_type,
                 .mask = OrNull(mask),
                 .count = piece.count,
                 .scale_type = value_type},
                DrawsOf(piece, stream));
}

template <class WorkerOf>
std::vector<LowBitModel::Packet> LowBitModel::CompressAll(Piece piece,
                                                          std::span<const void* const> inputs,
                                                          const WorkerOf& worker_of) {
  std::vector<Packet> packets;
  for (size_t rank = 0; rank < config_.ranks; ++rank) {
    const void* const input = ElementAt(inputs[rank], InputTypeOf(config_), piece.begin);
    const size_t worker = config_.hosts.empty() ? rank : worker_of(rank);
    packets.push_back(Compress(rank, piece, input, DataType::kF32, true, worker));
  }
  return packets;
}

LowBitModel::Packet LowBitModel::Reduce(size_t chunk, Piece piece,
                                        const std::vector<Packet>& packets) {
  if (piece.count == 0) return NewPacket(0);
  if (HasHostWeights(config_)) return ReduceHostsOf(chunk, piece, packets);
  Packet mean = NewPacket(piece.count);
  std::vector<LowBitPacketView> views;
  for (const Packet& packet : packets) views.push_back(packet.view());
  const std::vector<uint8_t> mask = MaskOf(piece);
  std::byte* const residual = ServerResidualOf(piece);
  const LowBitReduceInput in = {.packets = views.data(),
                                .ranks = config_.ranks,
                                .residual_in = residual,
                                .residual_out = residual,
                                .residual_type = config_.residual_type,
                                .mask = OrNull(mask),
                                .count = piece.count,
                                .output_type = config_.type,
                                .is_sum = config_.is_sum};
  config_.functions->reduce(in, config_.format, DrawsOf(piece, kServerStream + chunk),
                            {mean.scales.data(), mean.minimums.data(), mean.codes.data()});
  return mean;
}

// The same where the packets are those of hosts that count by their ranks.
LowBitModel::Packet LowBitModel::ReduceHostsOf(size_t chunk, Piece piece,
                                               const std::vector<Packet>& packets) {
  const std::vector<uint8_t> mask = MaskOf(piece);
  const std::vector<float> sum = SumOfHosts(piece, packets);
  std::byte* const residual = ServerResidualOf(piece);
  return Encode({.input = sum.data(),
                 .residual_in = residual,
                 .residual_out = residual,
                 .residual_type = config_.residual_type,
                 .mask = OrNull(mask),
                 .count = piece.count,
                 .scale_type = config_.type},
                DrawsOf(piece, kServerStream + chunk));
}

// The sum over ranks, or their mean, of packets of hosts.
std::vector<float> LowBitModel::SumOfHosts(Piece piece, const std::vector<Packet>& packets) const {
  const std::vector<uint8_t> mask = MaskOf(piece);
  return ReduceHosts(config_, piece.count, [&](size_t host, float* values) {
    config_.functions->Decode(packets[host].view(), config_.format, piece.count, OrNull(mask),
                              DataType::kF32, values);
  });
}

std::byte* LowBitModel::ServerResidualOf(Piece piece) {
  if (!config_.has_feedback || !config_.has_server_residual) return nullptr;
  return ElementAt(server_.data(), config_.residual_type, piece.begin);
}

void LowBitModel::Decode(const Packet& packet, Piece masked_as, void* output) const {
  if (masked_as.count == 0) return;
  const std::vector<uint8_t> mask = MaskOf(masked_as);
  config_.functions->Decode(packet.view(), config_.format, masked_as.count, OrNull(mask),
                            config_.type, output);
}

void LowBitModel::AllReduce(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  for (size_t chunk = 0; chunk < ChunksOf(config_); ++chunk) {
    const Piece piece = PieceOf(chunk);
    const auto worker_of = [&](size_t host) { return config_.hosts.WorkerOf(host, chunk); };
    const Packet mean = Reduce(chunk, piece, CompressAll(piece, inputs, worker_of));
    for (void* const output : outputs) {
      Decode(mean, piece, ElementAt(output, config_.type, piece.begin));
    }
  }
  ++calls_;
}

void LowBitModel::ReduceScatter(std::span<const void* const> inputs,
                                std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  for (size_t part = 0; part < PartsOf(config_); ++part) {
    const Piece piece = PartOf(part);
    const auto worker_of = [&](size_t host) { return config_.hosts.PartnerOn(host, part); };
    const std::vector<Packet> packets = CompressAll(piece, inputs, worker_of);
    if (piece.count == 0) continue;
    if (HasHostWeights(config_)) {
      StoreAll(SumOfHosts(piece, packets), config_.type, outputs[part]);
      continue;
    }
    std::vector<LowBitPacketView> views;
    for (const Packet& packet : packets) views.push_back(packet.view());
    const std::vector<uint8_t> mask = MaskOf(piece);
    const LowBitReduceInput in = {.packets = views.data(),
                                  .ranks = config_.ranks,
                                  .mask = OrNull(mask),
                                  .count = piece.count,
                                  .output_type = config_.type,
                                  .is_sum = config_.is_sum};
    config_.functions->average(in, config_.format, outputs[part]);
  }
  ++calls_;
}

void LowBitModel::AllGather(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  for (size_t part = 0; part < config_.ranks; ++part) {
    const Piece piece = PartOf(part);
    if (piece.count == 0) continue;
    // Every rank changes what it holds by the packet, the one that made it as well.
    const Packet packet = Compress(part, piece, inputs[part], config_.type, false, part);
    for (size_t rank = 0; rank < config_.ranks; ++rank) {
      std::byte* const output = ElementAt(outputs[rank], config_.type, piece.begin);
      if (!config_.has_feedback) {
        Decode(packet, piece, output);
        continue;
      }
      auto* const held = reinterpret_cast<float*>(worker_[rank].data()) + piece.begin;
      const std::vector<uint8_t> mask = MaskOf(piece);
      const LowBitDeltaInput in = {.packet = packet.view(),
                                   .held_in = held,
                                   .held_out = held,
                                   .mask = OrNull(mask),
                                   .count = piece.count,
                                   .output_type = config_.type};
      config_.functions->add_delta(in, config_.format, output);
    }
  }
  ++calls_;
}

void LowBitModel::AllToAll(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (CopyOne(inputs, outputs)) return;
  for (size_t from = 0; from < config_.ranks; ++from) {
    for (size_t to = 0; to < config_.ranks; ++to) {
      const Piece piece = PartOf(to);
      if (piece.count == 0) continue;
      const std::byte* const input = ElementAt(inputs[from], config_.type, piece.begin);
      std::byte* const output = ElementAt(outputs[to], config_.type, from * config_.count);
      if (from != to) {
        Decode(Compress(from, piece, input, config_.type, true, from), piece, output);
        continue;
      }
      const std::vector<uint8_t> mask = MaskOf(piece);
      for (size_t i = 0; i < piece.count; ++i) {
        const float value = TakesPart(OrNull(mask), i) ? LoadElement(input, config_.type, i) : 0.0f;
        StoreElement(value, config_.type, i, output);
      }
    }
  }
  ++calls_;
}

}  // namespace onebit::model
