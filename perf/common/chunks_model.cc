// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/chunks_model.h"

#include <cstring>

#include "kernels/kernels.h"
#include "kernels/reference/elements.h"

namespace onebit::model {

using namespace kernels;
using namespace kernels::reference;

namespace {

const std::byte* ChunkOf(const void* buffer, const ChunksConfig& config, size_t chunk) {
  return static_cast<const std::byte*>(buffer) + chunk * config.count * BytesOf(config.type);
}
std::byte* ChunkOf(void* buffer, const ChunksConfig& config, size_t chunk) {
  return static_cast<std::byte*>(buffer) + chunk * config.count * BytesOf(config.type);
}

// The residuals of all chunks; null in mode sign.
struct Residuals {
  const float* in = nullptr;
  float* out = nullptr;
};

// Makes a packet for each of `chunks` chunks.
std::vector<ChunkPacket> Compress(const ChunksConfig& config, size_t chunks, DataType scale_type,
                                  const void* input, const Residuals& residuals) {
  std::vector<ChunkPacket> packets(chunks);
  const size_t count = config.count;
  if (count == 0) return packets;
  const auto input_of = [&](size_t chunk) {
    CompressInput in;
    in.input_type = InputTypeOf(config);
    in.input = ElementAt(input, in.input_type, chunk * count);
    in.count = count;
    in.rule = config.rule;
    in.scale_type = scale_type;
    if (residuals.in != nullptr) {
      in.residual_in = residuals.in + chunk * count;
      in.residual_out = residuals.out + chunk * count;
    }
    return in;
  };
  TensorSum sum;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    ChunkPacket& packet = packets[chunk];
    packet.bits.resize(BitBytes(count));
    if (config.block == 0) {
      CompressSigns(input_of(chunk), packet.bits.data(), &sum);
      continue;
    }
    packet.scales.resize(BlockCount(count, config.block));
    CompressBlocks(input_of(chunk), config.block, packet.scales.data(), packet.bits.data());
  }
  if (config.block != 0) return packets;
  const float scale = OutputScale(ScaleOf(sum, config.rule), 1, false, scale_type);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    packets[chunk].scales = {scale};
    if (residuals.in != nullptr) CompressResidual(input_of(chunk), scale);
  }
  return packets;
}

}  // namespace

ChunkCompressor::ChunkCompressor(const ChunksConfig& config, size_t chunks, DataType scale_type)
    : config_(config), chunks_(chunks), scale_type_(scale_type), residual_(chunks * config.count) {}

std::vector<ChunkPacket> ChunkCompressor::Run(const void* input) {
  const Residuals residuals{residual_.data(), residual_.data()};
  return Compress(config_, chunks_, scale_type_, input,
                  config_.has_feedback ? residuals : Residuals{});
}

ReduceScatterModel::ReduceScatterModel(const ChunksConfig& config)
    : config_(config),
      compressors_(config.ranks, ChunkCompressor(config, PartsOf(config), DataType::kF32)) {}

void ReduceScatterModel::Run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (config_.ranks == 1) {
    std::memcpy(outputs[0], inputs[0], config_.count * BytesOf(config_.type));
    return;
  }
  std::vector<std::vector<ChunkPacket>> packets;
  for (size_t rank = 0; rank < config_.ranks; ++rank) {
    packets.push_back(compressors_[rank].Run(inputs[rank]));
  }
  for (size_t chunk = 0; chunk < PartsOf(config_) && config_.count != 0; ++chunk) {
    if (HasHostWeights(config_)) {
      const auto decode = [&](size_t host, float* values) {
        const ChunkPacket& packet = packets[host][chunk];
        Decode(packet.bits.data(), packet.scales.data(), config_.count, config_.block, nullptr,
               DataType::kF32, values);
      };
      StoreAll(ReduceHosts(config_, config_.count, decode), config_.type, outputs[chunk]);
      continue;
    }
    std::vector<const uint8_t*> bits;
    std::vector<const float*> scales;
    for (size_t rank = 0; rank < config_.ranks; ++rank) {
      bits.push_back(packets[rank][chunk].bits.data());
      scales.push_back(packets[rank][chunk].scales.data());
    }
    ReduceInput in;
    in.bits = bits.data();
    in.scales = scales.data();
    in.ranks = config_.ranks;
    in.count = config_.count;
    in.output_type = config_.type;
    in.is_sum = config_.is_sum;
    DecodeAverage(in, config_.block, outputs[chunk]);
  }
}

AllToAllModel::AllToAllModel(const ChunksConfig& config)
    : config_(config),
      compressors_(config.ranks * config.ranks, ChunkCompressor(config, 1, config.type)) {}

void AllToAllModel::Run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  for (size_t from = 0; from < config_.ranks; ++from) {
    for (size_t to = 0; to < config_.ranks; ++to) {
      const std::byte* input = ChunkOf(inputs[from], config_, to);
      std::byte* output = ChunkOf(outputs[to], config_, from);
      if (from == to) {
        if (config_.count != 0) {
          std::memcpy(output, input, config_.count * BytesOf(config_.type));
        }
        continue;
      }
      const ChunkPacket packet = compressors_[from * config_.ranks + to].Run(input)[0];
      if (config_.count == 0) continue;
      Decode(packet.bits.data(), packet.scales.data(), config_.count, config_.block, nullptr,
             config_.type, output);
    }
  }
}

std::span<const float> AllToAllModel::residual(size_t from, size_t to) const {
  return compressors_[from * config_.ranks + to].residual();
}

AllGatherModel::AllGatherModel(const ChunksConfig& config)
    : config_(config), negated_(config.elements()) {}

void AllGatherModel::Run(std::span<const void* const> inputs, void* output) {
  for (size_t rank = 0; rank < config_.ranks; ++rank) {
    std::byte* part = ChunkOf(output, config_, rank);
    if (config_.count == 0) continue;
    if (config_.ranks == 1) {
      std::memcpy(part, inputs[rank], config_.count * BytesOf(config_.type));
    } else if (config_.has_feedback) {
      RunDelta(rank, inputs[rank], part);
    } else {
      const ChunkPacket packet = Compress(config_, 1, config_.type, inputs[rank], {})[0];
      Decode(packet.bits.data(), packet.scales.data(), config_.count, config_.block, nullptr,
             config_.type, part);
    }
  }
}

void AllGatherModel::RunDelta(size_t rank, const void* input, std::byte* output) {
  float* held = negated_.data() + rank * config_.count;
  std::vector<float> lacking(config_.count);  // the next difference contains it, so nobody keeps it
  const ChunkPacket packet = Compress(config_, 1, DataType::kF32, input, {held, lacking.data()})[0];
  DeltaInput in;
  in.bits = packet.bits.data();
  in.scales = packet.scales.data();
  in.held_in = in.held_out = held;
  in.count = config_.count;
  in.output_type = config_.type;
  AddDelta(in, config_.block, output);
}

std::vector<float> AllGatherModel::held() const {
  std::vector<float> held;
  for (const float value : negated_) held.push_back(0 - value);
  return held;
}

}  // namespace onebit::model
