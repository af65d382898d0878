// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compressor/compressor.h"

#include <bit>

namespace onebit {

Result<Compressor> Compressor::Create(const Config& config) {
  Compressor compressor;
  compressor.config_ = config;
  if (config.kind != CodecKind::kEf) return compressor;
  // Buffers are never empty, so that a null pointer always means "this mode has none".
  const size_t bytes =
      std::max<size_t>(config.elements(), 1) * kernels::BytesOf(config.residual_type);
  for (int generation = 0; generation < (config.is_transactional ? 2 : 1); ++generation) {
    ONEBIT_ASSIGN_OR_RETURN(compressor.worker_[generation],
                            AlignedBuffer::Create(bytes, "a worker residual"));
  }
  ONEBIT_ASSIGN_OR_RETURN(ServerResidual server,
                          compressor.NewServerResidual(config.server_elements));
  compressor.ReplaceServer(std::move(server), 0);
  return compressor;
}

void Compressor::SetMask(const uint8_t* mask) {
  if (mask == nullptr) {
    mask_.clear();
    mask_digest_ = 0;
    return;
  }
  std::vector<uint8_t> packed(mask, mask + kernels::BitBytes(config_.elements()));
  if (const size_t used = config_.elements() % 8; used != 0) {
    packed.back() &= static_cast<uint8_t>((1u << used) - 1);
  }
  const auto checksum = kernels::cpu::ChecksumOf(packed.data(), packed.size());
  const uint32_t digest = checksum.sum ^ std::rotl(checksum.weighted, 16);
  mask_ = AlignChunks(std::move(packed));
  mask_digest_ = digest == 0 ? 1 : digest;
}

// Chunks whose length is no multiple of 8 begin within a byte; kernels want them at one.
std::vector<uint8_t> Compressor::AlignChunks(std::vector<uint8_t> packed) const {
  const size_t length = config_.count;
  if (config_.chunks == 1 || length % 8 == 0) return packed;
  const size_t stride = kernels::BitBytes(length);
  std::vector<uint8_t> aligned(config_.chunks * stride);
  for (size_t chunk = 0; chunk < config_.chunks; ++chunk) {
    for (size_t i = 0; i < length; ++i) {
      const size_t from = chunk * length + i;
      const unsigned bit = packed[from / 8] >> (from % 8) & 1u;
      aligned[chunk * stride + i / 8] |= static_cast<uint8_t>(bit << (i % 8));
    }
  }
  return aligned;
}

void Compressor::Commit() {
  generation_ = next();
  has_failed_call_ = false;
  lacks_results_ = false;
  ++age_;
  ++epoch_;
}

void Compressor::DiscardNonfinite() {
  ++nonfinite_calls_;
  DiscardFailed();
  has_failed_call_ = false;  // nobody commits such a call
}

void Compressor::DiscardFailed() {
  has_failed_call_ = true;
  if (config_.is_transactional || config_.kind != CodecKind::kEf) return;
  ClearResiduals();
  ++residual_resets_;
}

void Compressor::Reset() {
  op_.reset();
  has_failed_call_ = false;
  if (age_ != 0 && config_.kind == CodecKind::kEf) ++residual_resets_;
  ClearResiduals();
}

void Compressor::ClearResiduals() {
  worker_[generation_].Clear();
  server_[generation_].Clear();
  age_ = 0;
}

Result<Compressor::ServerResidual> Compressor::NewServerResidual(size_t elements) const {
  ServerResidual residual{.elements = elements, .generations = {}};
  if (!has_server_residual()) return residual;
  const size_t bytes = std::max<size_t>(elements, 1) * kernels::BytesOf(config_.residual_type);
  for (int generation = 0; generation < (config_.is_transactional ? 2 : 1); ++generation) {
    ONEBIT_ASSIGN_OR_RETURN(residual.generations[generation],
                            AlignedBuffer::Create(bytes, "a server residual"));
  }
  return residual;
}

void Compressor::ReplaceServer(ServerResidual residual, uint64_t lost_elements) {
  server_[generation_] = std::move(residual.generations[0]);
  server_[generation_ ^ 1] = std::move(residual.generations[1]);
  config_.server_elements = residual.elements;
  lost_elements_ += lost_elements;
}

size_t Compressor::residual_bytes() const {
  size_t bytes = 0;
  for (int generation = 0; generation < 2; ++generation) {
    bytes += worker_[generation].size() + server_[generation].size();
  }
  return bytes;
}

}  // namespace onebit
