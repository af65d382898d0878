// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compressor/compressor.h"

#include <bit>

namespace onebit {

Result<Compressor> Compressor::Create(const Config& config) {
  Compressor compressor;
  compressor.config_ = config;
  if (config.kind != CodecKind::kEf) return compressor;
  const size_t element_bytes = kernels::BytesOf(config.residual_type);
  // Buffers are never empty, so that a null pointer always means "this mode has none".
  const size_t worker_bytes = std::max<size_t>(config.count, 1) * element_bytes;
  const size_t server_bytes = std::max<size_t>(config.server_elements, 1) * element_bytes;
  const int generations = config.is_transactional ? 2 : 1;
  for (int generation = 0; generation < generations; ++generation) {
    ONEBIT_ASSIGN_OR_RETURN(compressor.worker_[generation],
                            AlignedBuffer::Create(worker_bytes, "a worker residual"));
    if (!config.has_server_residual) continue;
    ONEBIT_ASSIGN_OR_RETURN(compressor.server_[generation],
                            AlignedBuffer::Create(server_bytes, "a server residual"));
  }
  return compressor;
}

void Compressor::SetMask(const uint8_t* mask) {
  if (mask == nullptr) {
    mask_.clear();
    mask_digest_ = 0;
    return;
  }
  mask_.assign(mask, mask + kernels::BitBytes(config_.count));
  if (const size_t used = config_.count % 8; used != 0) {
    mask_.back() &= static_cast<uint8_t>((1u << used) - 1);
  }
  const auto checksum = kernels::cpu::ChecksumOf(mask_.data(), mask_.size());
  const uint32_t digest = checksum.sum ^ std::rotl(checksum.weighted, 16);
  mask_digest_ = digest == 0 ? 1 : digest;
}

void Compressor::Commit() {
  generation_ = next();
  ++age_;
  ++epoch_;
}

void Compressor::DiscardNonfinite() {
  ++nonfinite_calls_;
  DiscardFailed();
}

void Compressor::DiscardFailed() {
  if (config_.is_transactional || config_.kind != CodecKind::kEf) return;
  ClearResiduals();
  ++residual_resets_;
}

void Compressor::Reset() {
  op_.reset();
  if (age_ == 0) return;
  if (config_.kind == CodecKind::kEf) ++residual_resets_;
  ClearResiduals();
}

void Compressor::ClearResiduals() {
  worker_[generation_].Clear();
  server_[generation_].Clear();
  age_ = 0;
}

size_t Compressor::residual_bytes() const {
  size_t bytes = 0;
  for (int generation = 0; generation < 2; ++generation) {
    bytes += worker_[generation].size() + server_[generation].size();
  }
  return bytes;
}

}  // namespace onebit
