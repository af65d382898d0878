// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/chunk_model.h"

#include <array>
#include <utility>

#include "codec/message_header.h"
#include "perf/common/model_pieces.h"

namespace onebit::testing {

using kernels::DataType;
using kernels::ScaleRule;
using kernels::TensorSum;
namespace reference = kernels::reference;

onebitCompressorConfig_t ChunkCase::config() const {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = collective;
  config.mode = has_feedback ? onebitModeEf : onebitModePlain;
  config.scaleRule = rule == ScaleRule::kL2 ? onebitScaleL2 : onebitScaleL1;
  config.block = static_cast<int32_t>(block);
  config.residualType = ApiType(residual_type);
  config.transactional = is_transactional ? 1 : 0;
  config.mask = mask.empty() ? nullptr : mask.data();
  return config;
}

std::ostream& operator<<(std::ostream& out, const ChunkCase& c) {
  return out << TextOf(c.collective) << " on " << c.ranks << " ranks, " << c.count << " "
             << NameOf(c.type) << ", " << (c.is_sum ? "sum" : "avg") << ", "
             << (c.has_feedback ? "ef" : "sign") << (c.rule == ScaleRule::kL2 ? " l2" : " l1")
             << ", block " << c.block << ", residual " << NameOf(c.residual_type)
             << (c.is_transactional ? "" : ", not transactional")
             << (c.mask.empty() ? "" : ", masked") << (c.is_in_place ? ", in place" : "")
             << ", offset " << c.offset_elements;
}

ChunkCase RandomChunkCase(onebitCollective_t collective, size_t ranks, size_t count,
                          std::mt19937& random) {
  const auto one_of = [&](auto... choices) {
    const std::array values{choices...};
    return values[random() % values.size()];
  };
  ChunkCase c;
  c.collective = collective;
  c.ranks = ranks;
  c.count = count;
  c.type = one_of(DataType::kF32, DataType::kF16, DataType::kBf16);
  c.is_sum = collective == onebitCollectiveReduceScatter && one_of(false, true);
  c.has_feedback = one_of(false, true, true);
  c.rule = one_of(ScaleRule::kL1, ScaleRule::kL2);
  c.block = one_of(0u, 64u, 4096u);
  if (collective != onebitCollectiveAllGather || !c.has_feedback) {
    c.residual_type = one_of(DataType::kF32, DataType::kF32, DataType::kBf16);
  }
  c.is_transactional = one_of(false, true, true);
  if (one_of(false, false, true)) {
    c.mask.resize(kernels::BitBytes(c.elements()) + 1);  // not empty without elements, either
    for (uint8_t& byte : c.mask) byte = static_cast<uint8_t>(random());
  }
  c.is_in_place = collective != onebitCollectiveAllToAll && one_of(false, true);
  c.offset_elements = one_of(0u, 1u, 3u);
  return c;
}

std::vector<Tensor> RandomInputs(const ChunkCase& c, std::mt19937& random) {
  std::vector<Tensor> inputs;
  for (size_t rank = 0; rank < c.ranks; ++rank) {
    inputs.emplace_back(c.send_count(), c.type);
    inputs.back().FillNormal(random);
  }
  return inputs;
}

ChunkModel::ChunkModel(const ChunkCase& c) : case_(c) {
  Reset();
  SetMask(c.mask);
}

void ChunkModel::SetMask(std::vector<uint8_t> mask) {
  case_.mask = std::move(mask);
  masks_.clear();
  if (case_.mask.empty()) return;
  masks_.assign(case_.ranks, std::vector<uint8_t>(kernels::BitBytes(case_.count)));
  for (size_t i = 0; i < case_.elements(); ++i) {
    if (!reference::BitAt(case_.mask.data(), i)) continue;
    masks_[i / case_.count][i % case_.count / 8] |=
        static_cast<uint8_t>(1u << (i % case_.count % 8));
  }
}

void ChunkModel::Reset() {
  const size_t bytes = case_.elements() * kernels::BytesOf(case_.residual_type);
  residuals_.assign(case_.workers(), std::vector<std::byte>(bytes));
}

void ChunkModel::Hold(std::span<const float> values) {
  for (auto& residual : residuals_) {
    for (size_t i = 0; i < values.size(); ++i) {
      reference::StoreElement(0 - values[i], case_.residual_type, i, residual.data());
    }
  }
}

void ChunkModel::LoadGlobalState() {
  // What all ranks hold of an all-gather stays as it is.
  if (case_.collective == onebitCollectiveAllGather) return;
  for (size_t chunk = 0; chunk < case_.ranks; ++chunk) {
    const auto rank_of = [&](size_t host) { return case_.hosts.PartnerOn(host, chunk); };
    model::ShareMean(case_, {chunk * case_.count, case_.count}, rank_of, &residuals_);
  }
}

std::vector<Tensor> ChunkModel::Run(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs;
  for (size_t rank = 0; rank < case_.ranks; ++rank) {
    outputs.emplace_back(case_.receive_count(), case_.type);
  }
  if (case_.ranks == 1) {
    for (size_t i = 0; i < case_.count; ++i) {
      if (reference::TakesPart(MaskOf(0), i)) outputs[0].Set(i, inputs[0].Get(i));
    }
  } else if (case_.collective == onebitCollectiveReduceScatter) {
    ReduceScatter(inputs, outputs);
  } else if (case_.collective == onebitCollectiveAllGather) {
    AllGather(inputs, outputs);
  } else {
    AllToAll(inputs, outputs);
  }
  return outputs;
}

std::vector<float> ChunkModel::residual(size_t worker) const {
  std::vector<float> values(case_.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = reference::LoadElement(residuals_[worker].data(), case_.residual_type, i);
  }
  return values;
}

// `input` begins at element 0 of the tensor, except in an all-gather, where it begins at this
// rank's chunk.
kernels::CompressInput ChunkModel::InputOf(size_t worker, size_t chunk, const Tensor& input) {
  const bool is_own = case_.collective == onebitCollectiveAllGather;
  const size_t begin = is_own ? 0 : chunk * case_.count;
  const DataType type = model::InputTypeOf(case_);
  kernels::CompressInput in = {.input = input.data() + begin * kernels::BytesOf(type),
                               .input_type = type,
                               .residual_type = case_.residual_type,
                               .mask = MaskOf(chunk),
                               .count = case_.count,
                               .rule = case_.rule};
  if (case_.has_feedback) {
    in.residual_in = in.residual_out =
        residuals_[worker].data() + chunk * case_.count * kernels::BytesOf(case_.residual_type);
  }
  const bool is_decoded_as_it_is =
      case_.collective == onebitCollectiveAllToAll || (is_own && !case_.has_feedback);
  if (is_decoded_as_it_is) in.scale_type = case_.type;
  return in;
}

ChunkModel::Packet ChunkModel::Compress(size_t worker, size_t chunk, const Tensor& input) {
  Packet packet{.scales = {}, .bits = std::vector<uint8_t>(kernels::BitBytes(case_.count))};
  if (case_.count == 0) return packet;
  const kernels::CompressInput in = InputOf(worker, chunk, input);
  if (case_.block != 0) {
    packet.scales.resize(kernels::BlockCount(case_.count, case_.block));
    reference::CompressBlocks(in, case_.block, packet.scales.data(), packet.bits.data());
    return packet;
  }
  TensorSum sum;
  reference::CompressSigns(in, packet.bits.data(), &sum);
  packet.scales = {
      reference::OutputScale(reference::ScaleOf(sum, in.rule), 1, false, in.scale_type)};
  reference::CompressResidual(in, packet.scales[0]);
  return packet;
}

// Uses one scale for all chunks.
std::vector<ChunkModel::Packet> ChunkModel::CompressTensor(size_t worker, const Tensor& input) {
  std::vector<Packet> packets(case_.ranks);
  TensorSum sum;
  for (size_t chunk = 0; chunk < case_.ranks; ++chunk) {
    packets[chunk].bits.resize(kernels::BitBytes(case_.count));
    reference::CompressSigns(InputOf(worker, chunk, input), packets[chunk].bits.data(), &sum);
  }
  for (size_t chunk = 0; chunk < case_.ranks; ++chunk) {
    packets[chunk].scales = {reference::ScaleOf(sum, case_.rule)};
    reference::CompressResidual(InputOf(worker, chunk, input), packets[chunk].scales[0]);
  }
  return packets;
}

void ChunkModel::ReduceScatter(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  std::vector<std::vector<Packet>> packets(case_.workers());  // [worker][chunk]
  for (size_t worker = 0; worker < packets.size(); ++worker) {
    if (case_.block == 0) {
      packets[worker] = CompressTensor(worker, inputs[worker]);
      continue;
    }
    for (size_t chunk = 0; chunk < case_.ranks; ++chunk) {
      packets[worker].push_back(Compress(worker, chunk, inputs[worker]));
    }
  }
  for (size_t chunk = 0; chunk < case_.ranks; ++chunk) {
    if (model::HasHostWeights(case_)) {
      ReduceHostsOf(packets, chunk, outputs[chunk]);
      continue;
    }
    std::vector<const uint8_t*> bits;
    std::vector<const float*> scales;
    for (const std::vector<Packet>& of_worker : packets) {
      bits.push_back(of_worker[chunk].bits.data());
      scales.push_back(of_worker[chunk].scales.data());
    }
    reference::DecodeAverage({.bits = bits.data(),
                              .scales = scales.data(),
                              .ranks = packets.size(),
                              .mask = MaskOf(chunk),
                              .count = case_.count,
                              .output_type = case_.type,
                              .is_sum = case_.is_sum},
                             case_.block, outputs[chunk].data());
  }
}

// The chunk of one rank where the packets are those of hosts that count by their ranks.
void ChunkModel::ReduceHostsOf(const std::vector<std::vector<Packet>>& packets, size_t chunk,
                               Tensor& output) const {
  if (case_.count == 0) return;
  const auto decode = [&](size_t host, float* values) {
    const Packet& packet = packets[host][chunk];
    reference::Decode(packet.bits.data(), packet.scales.data(), case_.count, case_.block,
                      MaskOf(chunk), DataType::kF32, values);
  };
  model::StoreAll(model::ReduceHosts(case_, case_.count, decode), case_.type, output.data());
}

void ChunkModel::AllGather(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  for (size_t from = 0; from < case_.ranks; ++from) {
    const std::vector<std::byte> before = residuals_[from];
    const Packet packet = Compress(from, from, inputs[from]);
    residuals_[from] = before;  // changes below by the decoded packet
    for (size_t to = 0; to < case_.ranks; ++to) {
      std::byte* output = ElementAt(outputs[to], from * case_.count);
      if (!case_.has_feedback) {
        reference::Decode(packet.bits.data(), packet.scales.data(), case_.count, case_.block,
                          MaskOf(from), case_.type, output);
        continue;
      }
      float* held = reinterpret_cast<float*>(residuals_[to].data()) + from * case_.count;
      reference::AddDelta({.bits = packet.bits.data(),
                           .scales = packet.scales.data(),
                           .held_in = held,
                           .held_out = held,
                           .mask = MaskOf(from),
                           .count = case_.count,
                           .output_type = case_.type},
                          case_.block, output);
    }
  }
}

void ChunkModel::AllToAll(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  for (size_t from = 0; from < case_.ranks; ++from) {
    for (size_t to = 0; to < case_.ranks; ++to) {
      if (from == to) {
        for (size_t i = 0; i < case_.count; ++i) {
          const size_t element = from * case_.count + i;
          if (!reference::TakesPart(MaskOf(to), i)) continue;
          outputs[to].Set(element, inputs[from].Get(element));
        }
        continue;
      }
      const Packet packet = Compress(from, to, inputs[from]);
      reference::Decode(packet.bits.data(), packet.scales.data(), case_.count, case_.block,
                        MaskOf(to), case_.type, ElementAt(outputs[to], from * case_.count));
    }
  }
}

}  // namespace onebit::testing
