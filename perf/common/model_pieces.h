// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar models of compressed collectives share this: pieces of a tensor, their masks, residuals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/reference/elements.h"

namespace onebit::model {

struct ModelPiece {
  size_t begin = 0;  // in the tensor
  size_t count = 0;
};

// Chunk number `chunk` of an allreduce of `count` elements.
inline ModelPiece ModelChunk(size_t count, size_t ranks, size_t alignment, size_t chunk) {
  const size_t share = (count + ranks - 1) / ranks;
  const size_t length = (share + alignment - 1) / alignment * alignment;
  const size_t begin = std::min(chunk * length, count);
  return {begin, std::min(begin + length, count) - begin};
}

// The mask of a piece as kernels take it; empty without one.
inline std::vector<uint8_t> MaskOfPiece(const std::vector<bool>& mask, ModelPiece piece) {
  if (mask.empty()) return {};
  std::vector<uint8_t> packed(kernels::BitBytes(piece.count) + 1);  // never empty
  for (size_t i = 0; i < piece.count; ++i) {
    if (mask[piece.begin + i]) packed[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
  }
  return packed;
}

inline const uint8_t* OrNull(const std::vector<uint8_t>& mask) {
  return mask.empty() ? nullptr : mask.data();
}

inline std::vector<float> FloatsOf(const std::vector<std::byte>& residual, kernels::DataType type) {
  std::vector<float> values(residual.size() / kernels::BytesOf(type));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = kernels::reference::LoadElement(residual.data(), type, i);
  return values;
}

// What a state of all ranks brings back (STATE.md): to each rank the mean of the workers'
// residuals.
inline void ShareMean(std::vector<std::vector<std::byte>>* workers, kernels::DataType type) {
  for (size_t i = 0; i < workers->front().size() / kernels::BytesOf(type); ++i) {
    float sum = 0;
    for (const auto& worker : *workers)
      sum += kernels::reference::LoadElement(worker.data(), type, i);
    const float mean = sum / static_cast<float>(workers->size());
    for (auto& worker : *workers) kernels::reference::StoreElement(mean, type, i, worker.data());
  }
}

// The call of a rank by itself, for which nothing is compressed.
inline void CopyMasked(const void* input, const std::vector<bool>& mask, kernels::DataType type,
                       size_t count, void* output) {
  for (size_t i = 0; i < count; ++i) {
    const bool takes_part = mask.empty() || mask[i];
    kernels::reference::StoreElement(
        takes_part ? kernels::reference::LoadElement(input, type, i) : 0, type, i, output);
  }
}

}  // namespace onebit::model
