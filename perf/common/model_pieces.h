// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scalar models of compressed collectives share this: pieces of a tensor, their masks, residuals,
// and what two levels add.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/elements.h"
#include "perf/common/host_layout.h"

namespace onebit::model {

struct ModelPiece {
  size_t begin = 0;  // in the tensor
  size_t count = 0;
};

// Chunk number `chunk` of an allreduce of `count` elements in `chunks` chunks.
inline ModelPiece ModelChunk(size_t count, size_t chunks, size_t alignment, size_t chunk) {
  const size_t share = (count + chunks - 1) / chunks;
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

// The call of a rank by itself, for which nothing is compressed.
inline void CopyMasked(const void* input, const std::vector<bool>& mask, kernels::DataType type,
                       size_t count, void* output) {
  for (size_t i = 0; i < count; ++i) {
    const bool takes_part = mask.empty() || mask[i];
    kernels::reference::StoreElement(
        takes_part ? kernels::reference::LoadElement(input, type, i) : 0, type, i, output);
  }
}

template <class T>
std::vector<const void*> PointersTo(const std::vector<std::vector<T>>& buffers) {
  std::vector<const void*> pointers;
  for (const auto& buffer : buffers) pointers.push_back(buffer.data());
  return pointers;
}

// The configuration of an allreduce or a reduce-scatter in two levels has `hosts`. Its `ranks` are
// these hosts then, and its inputs are the means of their ranks in fp32; outputs are still those of
// ranks. Models of other collectives know no hosts: levels do not change results.
template <class Config>
size_t ChunksOf(const Config& config) {
  return config.hosts.empty() ? config.ranks : config.hosts.chunks();
}
// In collectives with a part for each rank.
template <class Config>
size_t PartsOf(const Config& config) {
  return config.hosts.empty() ? config.ranks : config.hosts.ranks();
}
template <class Config>
kernels::DataType InputTypeOf(const Config& config) {
  return config.hosts.empty() ? config.type : kernels::DataType::kF32;
}
// True if packets of hosts are not merely averaged: they stand for different numbers of ranks, or
// for a sum over ranks.
template <class Config>
bool HasHostWeights(const Config& config) {
  return !config.hosts.empty() && (config.is_sum || !config.hosts.is_even());
}

// A state of all ranks brings back to each worker the mean over ranks of what workers owe of a
// piece (STATE.md). The mean is formed in the order of ranks, and rank_of(host) is the one that has
// the residual of its host.
template <class Config, class RankOf>
void ShareMean(const Config& config, ModelPiece piece, const RankOf& rank_of,
               std::vector<std::vector<std::byte>>* workers) {
  const kernels::DataType type = config.residual_type;
  std::vector<size_t> order(workers->size());
  std::iota(order.begin(), order.end(), 0);
  if (!config.hosts.empty()) std::ranges::sort(order, {}, rank_of);
  std::vector<const void*> terms;
  std::vector<float> sizes;
  for (const size_t worker : order) {
    terms.push_back(kernels::reference::ElementAt((*workers)[worker].data(), type, piece.begin));
    sizes.push_back(static_cast<float>(config.hosts.RanksOfWorker(worker)));
  }
  std::vector<float> mean(piece.count);
  kernels::reference::DenseReduce(
      terms.data(), terms.size(), piece.count, type, kernels::DenseOp::kAverage, mean.data(),
      {.divisor = PartsOf(config), .factors = sizes.data(), .is_output_f32 = true});
  for (auto& worker : *workers) {
    for (size_t i = 0; i < piece.count; ++i) {
      // A sum that begins at 0 is never -0.
      kernels::reference::StoreElement(0 + mean[i], type, piece.begin + i, worker.data());
    }
  }
}

// Servers of sums that keep their residuals in units of the sum get them back from a state that has
// them in units of the mean.
inline void ShareSums(size_t ranks, kernels::DataType type, std::vector<std::byte>* servers) {
  const auto n = static_cast<float>(ranks);
  for (size_t i = 0; i < servers->size() / kernels::BytesOf(type); ++i) {
    const float value = kernels::reference::LoadElement(servers->data(), type, i);
    kernels::reference::StoreElement(value / n * n, type, i, servers->data());
  }
}

// The mean of each host's ranks in fp32.
inline std::vector<std::vector<float>> MeansOfHosts(const HostLayout& hosts,
                                                    std::span<const void* const> inputs,
                                                    size_t count, kernels::DataType type) {
  std::vector<std::vector<float>> means;
  for (const auto& ranks : hosts.ranks_on) {
    std::vector<const void*> here;
    for (const size_t rank : ranks) here.push_back(inputs[rank]);
    kernels::reference::DenseReduce(here.data(), here.size(), count, type,
                                    kernels::DenseOp::kAverage, means.emplace_back(count).data(),
                                    {.is_output_f32 = true});
  }
  return means;
}

// The sum or the mean over ranks of a piece, from what the packets of their hosts stand for:
// decode(host, values) writes it.
template <class Config, class Decode>
std::vector<float> ReduceHosts(const Config& config, size_t count, const Decode& decode) {
  std::vector<std::vector<float>> values;
  std::vector<float> sizes;
  for (size_t host = 0; host < config.hosts.hosts(); ++host) {
    decode(host, values.emplace_back(count).data());
    sizes.push_back(static_cast<float>(config.hosts.ranks_on[host].size()));
  }
  const std::vector<const void*> pointers = PointersTo(values);
  std::vector<float> result(count);
  kernels::reference::DenseReduce(
      pointers.data(), pointers.size(), count, kernels::DataType::kF32,
      config.is_sum ? kernels::DenseOp::kSum : kernels::DenseOp::kAverage, result.data(),
      {.divisor = config.hosts.ranks(), .factors = sizes.data()});
  return result;
}

// Rounds values once to the type of an output.
inline void StoreAll(std::span<const float> values, kernels::DataType type, void* output) {
  for (size_t i = 0; i < values.size(); ++i) {
    kernels::reference::StoreElement(values[i], type, i, output);
  }
}

}  // namespace onebit::model
