// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One call has three steps, as on real ranks: every rank compresses all chunks, every server
// reduces its chunk of all ranks and compresses it again, and everybody decodes all chunks.
#include "perf/common/allreduce_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/reference/elements.h"
#include "perf/common/model_pieces.h"

namespace onebit::model {

using namespace kernels;
using namespace kernels::reference;

namespace {

// Runs work(0) .. work(count - 1) on up to `threads` threads. Returns true if all returned true.
bool ForEach(size_t count, size_t threads, const std::function<bool(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> all = true;
  auto worker = [&] {
    for (size_t i = next++; i < count; i = next++) {
      if (!work(i)) all = false;
    }
  };
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min(threads, count); ++i) helpers.emplace_back(worker);
  worker();
  helpers.clear();  // joins
  return all;
}

void FillNan(void* output, size_t count, DataType type) {
  const uint32_t f32 = 0x7fc00000;
  const uint16_t f16 = type == DataType::kF16 ? 0x7e00 : 0x7fc0;
  for (size_t i = 0; i < count; ++i) {
    const void* value = type == DataType::kF32 ? static_cast<const void*>(&f32) : &f16;
    std::memcpy(ElementAt(output, type, i), value, BytesOf(type));
  }
}

// Residuals are fp32 or bf16; a bf16 is the upper half of an fp32.
std::vector<float> ResidualAsFloat(std::span<const std::byte> values, DataType type, size_t count) {
  std::vector<float> result(count, 0.0f);
  for (size_t i = 0; i < count && !values.empty(); ++i) {
    uint32_t bits = 0;
    if (type == DataType::kF32) {
      std::memcpy(&bits, ElementAt(values.data(), type, i), 4);
    } else {
      uint16_t upper = 0;
      std::memcpy(&upper, ElementAt(values.data(), type, i), 2);
      bits = static_cast<uint32_t>(upper) << 16;
    }
    std::memcpy(&result[i], &bits, 4);
  }
  return result;
}

bool IsAmong(std::span<const size_t> ranks, size_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

ChunkRange ChunkOf(size_t count, size_t ranks, size_t alignment, size_t rank) {
  const size_t share = (count + ranks - 1) / ranks;
  const size_t length = (share + alignment - 1) / alignment * alignment;
  return {std::min(rank * length, count), std::min((rank + 1) * length, count)};
}

AllReduceModel::AllReduceModel(AllReduceConfig config) : config_(std::move(config)) {
  for (size_t chunk = 0; chunk < ChunksOf(config_); ++chunk) {
    ChunkRange rest = Chunk(chunk);
    for (const size_t cut : config_.cuts) {
      if (cut <= rest.begin || cut >= rest.end) continue;
      pieces_.push_back({rest.begin, cut});
      rest.begin = cut;
    }
    pieces_.push_back(rest);
  }
  worker_packets_.assign(config_.ranks, std::vector<Packet>(pieces_.size()));
  server_packets_.resize(pieces_.size());
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    const Packet empty{std::vector<float>(ScaleCount(piece)),
                       std::vector<uint8_t>(BitBytes(pieces_[piece].size()))};
    for (std::vector<Packet>& packets : worker_packets_) packets[piece] = empty;
    server_packets_[piece] = empty;
  }
  SetMask(std::move(config_.mask));
  Reset();
}

// A piece may begin within a byte of the tensor's mask.
void AllReduceModel::SetMask(std::vector<uint8_t> mask) {
  config_.mask = std::move(mask);
  masks_.clear();
  if (config_.mask.empty()) return;
  for (const ChunkRange& range : pieces_) {
    std::vector<uint8_t> bits(BitBytes(range.size()));
    for (size_t i = range.begin; i < range.end; ++i) {
      const size_t at = i - range.begin;
      if (BitAt(config_.mask.data(), i)) bits[at / 8] |= static_cast<uint8_t>(1u << (at % 8));
    }
    masks_.push_back(std::move(bits));
  }
}

void AllReduceModel::Reset() {
  if (!config_.has_feedback) return;
  const Bytes zero(config_.count * BytesOf(config_.residual_type));
  worker_.assign(config_.ranks, zero);
  worker_next_ = worker_;
  if (!config_.has_server_residual) return;
  server_ = server_next_ = zero;
}

void AllReduceModel::LoadGlobalState() {
  for (size_t chunk = 0; chunk < ChunksOf(config_) && !worker_.empty(); ++chunk) {
    const ChunkRange range = Chunk(chunk);
    const auto rank_of = [&](size_t host) { return config_.hosts.WorkerOf(host, chunk); };
    ShareMean(config_, {range.begin, range.size()}, rank_of, &worker_);
  }
  // In one level servers of signs keep their residuals in units of the mean, also in sums.
  const bool has_sums = config_.is_sum && !config_.hosts.empty();
  if (has_sums) ShareSums(PartsOf(config_), config_.residual_type, &server_);
}

bool AllReduceModel::Run(std::span<const void* const> inputs, void* output) {
  const size_t ranks = config_.ranks;
  const bool is_finite = ranks == 1
                             ? CopyMasked(inputs[0], output)
                             : ForEach(ranks, config_.threads,
                                       [&](size_t r) { return CompressWorker(r, inputs[r]); }) &&
                                   ForEach(pieces_.size(), config_.threads,
                                           [&](size_t piece) { return ReducePiece(piece); });
  if (!is_finite) {
    FillNan(output, config_.count, config_.type);
    if (!config_.is_transactional) Reset();
    return false;
  }

  if (ranks == 1) return true;
  std::swap(worker_, worker_next_);
  std::swap(server_, server_next_);
  return ForEach(pieces_.size(), config_.threads, [&](size_t piece) {
    DecodePiece(piece, output);
    return true;
  });
}

// A single rank compresses nothing: the output is the input, of which the unmasked part must be
// finite.
bool AllReduceModel::CopyMasked(const void* input, void* output) const {
  for (size_t i = 0; i < config_.count; ++i) {
    const bool takes_part = config_.mask.empty() || BitAt(config_.mask.data(), i);
    const float value = takes_part ? LoadElement(input, config_.type, i) : 0.0f;
    if (!std::isfinite(value)) return false;
    StoreElement(value, config_.type, i, output);
  }
  return true;
}

// Phase 1 of one rank: signs and scales of every piece. Returns true if everything was finite.
bool AllReduceModel::CompressWorker(size_t rank, const void* input) {
  std::vector<CompressInput> inputs(pieces_.size());
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    const size_t begin = pieces_[piece].begin;
    CompressInput& in = inputs[piece];
    in.input_type = InputTypeOf(config_);
    in.input = ElementAt(input, in.input_type, begin);
    in.residual_type = config_.residual_type;
    in.mask = MaskOf(piece);
    in.count = pieces_[piece].size();
    in.rule = config_.rule;
    if (config_.has_feedback) {
      in.residual_in = ElementAt(worker_[rank].data(), config_.residual_type, begin);
      in.residual_out = ElementAt(worker_next_[rank].data(), config_.residual_type, begin);
    }
  }

  bool is_finite = true;
  if (config_.block > 0) {
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      Packet& packet = worker_packets_[rank][piece];
      is_finite &=
          CompressBlocks(inputs[piece], config_.block, packet.scales.data(), packet.bits.data());
    }
    return is_finite;
  }

  // A single scale covers all chunks, so it is known only after the last one was summed.
  TensorSum sum;
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    CompressSigns(inputs[piece], worker_packets_[rank][piece].bits.data(), &sum);
  }
  const float scale = ScaleOf(sum, config_.rule);
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    worker_packets_[rank][piece].scales[0] = scale;
    if (config_.has_feedback) CompressResidual(inputs[piece], scale);
  }
  return sum.is_finite && std::isfinite(scale);
}

// Phase 2 of the server of a piece: mean of all ranks' packets, compressed again.
bool AllReduceModel::ReducePiece(size_t piece) {
  if (HasHostWeights(config_)) return ReduceHostsOf(piece);
  const ChunkRange range = pieces_[piece];
  std::vector<const uint8_t*> bits;
  std::vector<const float*> scales;
  for (const std::vector<Packet>& packets : worker_packets_) {
    bits.push_back(packets[piece].bits.data());
    scales.push_back(packets[piece].scales.data());
  }
  ReduceInput in;
  in.bits = bits.data();
  in.scales = scales.data();
  in.ranks = config_.ranks;
  in.residual_type = config_.residual_type;
  in.mask = MaskOf(piece);
  in.count = range.size();
  in.rule = config_.rule;
  in.output_type = config_.type;
  in.is_sum = config_.is_sum;
  const bool has_residual = config_.has_feedback && config_.has_server_residual;
  if (has_residual) {
    in.residual_in = ElementAt(server_.data(), config_.residual_type, range.begin);
    in.residual_out = ElementAt(server_next_.data(), config_.residual_type, range.begin);
  }

  Packet& packet = server_packets_[piece];
  if (config_.block > 0) {
    return ReduceBlocks(in, config_.block, packet.scales.data(), packet.bits.data());
  }
  TensorSum sum;
  ReduceSigns(in, packet.bits.data(), &sum);
  const float t =
      OutputScale(ScaleOf(sum, config_.rule), config_.ranks, config_.is_sum, config_.type);
  packet.scales[0] = t;
  if (has_residual) ReduceResidual(in, t);
  return sum.is_finite && std::isfinite(t);
}

// The same where the packets are those of hosts that count by their ranks.
bool AllReduceModel::ReduceHostsOf(size_t piece) {
  const ChunkRange range = pieces_[piece];
  const std::vector<float> sum =
      ReduceHosts(config_, range.size(), [&](size_t host, float* values) {
        const Packet& packet = worker_packets_[host][piece];
        Decode(packet.bits.data(), packet.scales.data(), range.size(), config_.block, MaskOf(piece),
               DataType::kF32, values);
      });
  CompressInput in;
  in.input = sum.data();
  in.residual_type = config_.residual_type;
  in.mask = MaskOf(piece);
  in.count = range.size();
  in.rule = config_.rule;
  in.scale_type = config_.type;
  if (config_.has_feedback && config_.has_server_residual) {
    in.residual_in = ElementAt(server_.data(), config_.residual_type, range.begin);
    in.residual_out = ElementAt(server_next_.data(), config_.residual_type, range.begin);
  }
  Packet& packet = server_packets_[piece];
  return CompressBlocks(in, config_.block, packet.scales.data(), packet.bits.data());
}

void AllReduceModel::DecodePiece(size_t piece, void* output) const {
  const ChunkRange range = pieces_[piece];
  const Packet& packet = server_packets_[piece];
  Decode(packet.bits.data(), packet.scales.data(), range.size(), config_.block, MaskOf(piece),
         config_.type, ElementAt(output, config_.type, range.begin));
}

ChunkRange AllReduceModel::Chunk(size_t chunk) const {
  return ChunkOf(config_.count, ChunksOf(config_), config_.chunk_alignment, chunk);
}

size_t AllReduceModel::ScaleCount(size_t piece) const {
  return config_.block > 0 ? BlockCount(pieces_[piece].size(), config_.block) : 1;
}

const uint8_t* AllReduceModel::MaskOf(size_t piece) const {
  return masks_.empty() ? nullptr : masks_[piece].data();
}

AllReduceModel AllReduceModel::Rebound(std::span<const size_t> survivors,
                                       bool has_every_rank_all_chunks) const {
  AllReduceConfig config = config_;
  config.ranks = survivors.size();
  AllReduceModel rebound(std::move(config));
  if (!config_.has_feedback) return rebound;
  for (size_t rank = 0; rank < survivors.size(); ++rank) {
    rebound.worker_[rank] = worker_[survivors[rank]];
  }
  if (!config_.has_server_residual) return rebound;
  const DataType type = config_.residual_type;
  const float factor =
      config_.is_sum ? static_cast<float>(config_.ranks) / static_cast<float>(survivors.size())
                     : 1.0f;
  for (size_t chunk = 0; chunk < config_.ranks; ++chunk) {
    if (!has_every_rank_all_chunks && !IsAmong(survivors, chunk)) continue;
    const ChunkRange range = Chunk(chunk);
    for (size_t i = range.begin; i < range.end; ++i) {
      StoreElement(LoadElement(server_.data(), type, i) * factor, type, i, rebound.server_.data());
    }
  }
  return rebound;
}

size_t AllReduceModel::LostElements(std::span<const size_t> survivors,
                                    bool has_every_rank_all_chunks) const {
  if (server_.empty() || has_every_rank_all_chunks) return 0;
  size_t lost = 0;
  for (size_t chunk = 0; chunk < config_.ranks; ++chunk) {
    if (!IsAmong(survivors, chunk)) lost += Chunk(chunk).size();
  }
  return lost;
}

std::vector<float> AllReduceModel::worker_residual(size_t rank) const {
  if (worker_.empty()) return std::vector<float>(config_.count, 0.0f);
  return ResidualAsFloat(worker_[rank], config_.residual_type, config_.count);
}

std::vector<float> AllReduceModel::server_residual() const {
  return ResidualAsFloat(server_, config_.residual_type, config_.count);
}

void DenseAllReduce(std::span<const void* const> inputs, size_t count, DataType type, DenseOp op,
                    void* output) {
  if (inputs.size() == 1) {  // the identity, NaN payloads included
    if (count > 0) std::memmove(output, inputs[0], count * BytesOf(type));
    return;
  }
  DenseReduce(inputs.data(), inputs.size(), count, type, op, output);
}

void DenseAllReduceOnHosts(const HostLayout& hosts, std::span<const void* const> inputs,
                           size_t count, DataType type, DenseOp op, void* output) {
  // Sums of 16-bit floats overflow where means do not.
  const bool has_means =
      op == DenseOp::kAverage && (type == DataType::kF16 || type == DataType::kBf16);
  const DenseOp op_of_ranks = op == DenseOp::kAverage && !has_means ? DenseOp::kSum : op;
  std::vector<std::vector<std::byte>> results;
  std::vector<const void*> pointers;
  std::vector<float> sizes;
  for (const std::vector<size_t>& ranks : hosts.ranks_on) {
    std::vector<const void*> here;
    for (const size_t rank : ranks) here.push_back(inputs[rank]);
    results.emplace_back(count * BytesOf(type));
    DenseReduce(here.data(), here.size(), count, type, op_of_ranks, results.back().data());
    pointers.push_back(results.back().data());
    sizes.push_back(static_cast<float>(ranks.size()));
  }
  DenseTerms terms;
  if (!has_means || !hosts.is_even()) terms.divisor = inputs.size();
  if (has_means && !hosts.is_even()) terms.factors = sizes.data();
  DenseReduce(pointers.data(), pointers.size(), count, type, op, output, terms);
}

}  // namespace onebit::model
