// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/low_bit_calls.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "codec/message_header.h"
#include "perf/common/codec_table.h"
#include "tests/support/tensor.h"

namespace onebit::testing {

using kernels::DataType;
using kernels::LowBitCodec;

kernels::LowBitCodec KernelCodec(onebitCodec_t codec) {
  switch (codec) {
    case onebitCodecInt8:
      return LowBitCodec::kInt8;
    case onebitCodecUint8mm:
      return LowBitCodec::kUint8;
    case onebitCodecInt2:
      return LowBitCodec::kInt2;
    case onebitCodecInt8Stochastic:
      return LowBitCodec::kInt8Stochastic;
    case onebitCodecFp4:
    case onebitCodecSign:
    case onebitCodecTopk:
    case onebitCodecRandk:
    case onebitCodecBf16:
    case onebitCodecLossless:
      break;
  }
  return LowBitCodec::kFp4;
}

const char* TextOf(onebitCodec_t codec) { return FindCodec(codec)->name; }

uint64_t PayloadBytes(kernels::LowBitFormat format, const std::vector<size_t>& counts) {
  uint64_t blocks = 0;
  for (const size_t count : counts) blocks += (count + format.block - 1) / format.block;
  const uint64_t scale_bytes = blocks * (format.codec == LowBitCodec::kUint8 ? 4 : 2);
  const uint64_t elements = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const uint64_t bits = format.codec == LowBitCodec::kFp4    ? 4
                        : format.codec == LowBitCodec::kInt2 ? 2
                                                             : 8;
  return (scale_bytes + 15) / 16 * 16 + (elements * bits + 7) / 8;
}

onebitCompressorConfig_t LowBitCase::config() const {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = collective;
  config.codec = codec;
  config.mode = has_feedback ? onebitModeEf : onebitModePlain;
  config.block = static_cast<int32_t>(model.format.block);
  config.residualType = ApiType(model.residual_type);
  config.tensorId = model.tensor_id;
  config.mask = packed_mask.empty() ? nullptr : packed_mask.data();
  config.seed = model.seed;
  return config;
}

size_t LowBitCase::elements() const {
  return collective == onebitCollectiveAllReduce ? model.count : model.ranks * model.count;
}

uint64_t LowBitCase::WireBytes(size_t rank) const {
  constexpr uint64_t kHeader = 64;
  const size_t n = model.ranks;
  if (n == 1) return 0;
  const auto payload = [this](const std::vector<size_t>& counts) -> uint64_t {
    if (codec != onebitCodecBf16) return PayloadBytes(model.format, counts);
    return 2 * std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  const uint64_t peers = n - 1;
  const uint64_t verdicts = has_feedback ? peers * kHeader : 0;
  if (collective != onebitCollectiveAllReduce) {
    return peers * (kHeader + payload({model.count})) + verdicts;
  }
  std::vector<size_t> chunks;
  const size_t length = ((model.count + n - 1) / n + 63) / 64 * 64;
  for (size_t chunk = 0; chunk < n; ++chunk) {
    const size_t begin = std::min(chunk * length, model.count);
    chunks.push_back(std::min(begin + length, model.count) - begin);
  }
  if (is_one_exchange) return peers * (kHeader + payload(chunks));
  uint64_t bytes = peers * (2 * kHeader + payload({chunks[rank]}));
  for (size_t chunk = 0; chunk < n; ++chunk) {
    if (chunk != rank) bytes += payload({chunks[chunk]});
  }
  return bytes;
}

std::ostream& operator<<(std::ostream& out, const LowBitCase& c) {
  return out << TextOf(c.collective) << " " << TextOf(c.codec)
             << (c.has_feedback ? " ef" : " plain") << (c.is_one_exchange ? ", one exchange" : "")
             << " on " << c.model.ranks << " ranks, " << c.model.count << " "
             << NameOf(c.model.type) << ", " << (c.model.is_sum ? "sum" : "avg") << ", block "
             << c.model.format.block << ", residual " << NameOf(c.model.residual_type)
             << (c.packed_mask.empty() ? "" : ", masked");
}

LowBitCase RandomLowBitCase(onebitCollective_t collective, onebitCodec_t codec, bool has_feedback,
                            size_t ranks, size_t count, std::mt19937& random) {
  const auto one_of = [&](auto... choices) {
    const std::array values{choices...};
    return values[random() % values.size()];
  };
  LowBitCase c = {.collective = collective, .codec = codec, .has_feedback = has_feedback};
  c.model = {
      .ranks = ranks,
      .count = count,
      .type = one_of(DataType::kF32, DataType::kF16, DataType::kBf16),
      .format = {.block = one_of(size_t{32}, size_t{96}, size_t{128}, size_t{256}, size_t{4096})},
      .has_feedback = has_feedback,
      .seed = (uint64_t{random()} << 32) | random(),
      .tensor_id = static_cast<uint32_t>(random() % 1000)};
  if (codec == onebitCodecBf16) c.model.format.block = 1;
  perf::SetCodec(codec, static_cast<int32_t>(c.model.format.block), &c.model);
  const bool reduces =
      collective == onebitCollectiveAllReduce || collective == onebitCollectiveReduceScatter;
  c.model.is_sum = reduces && one_of(false, true);
  if (collective != onebitCollectiveAllGather) {
    c.model.residual_type = one_of(DataType::kF32, DataType::kF32, DataType::kBf16);
  }
  if (one_of(false, false, true)) {
    c.model.mask.resize(c.elements());
    c.packed_mask.resize(kernels::BitBytes(c.elements()) + 1);
    for (size_t i = 0; i < c.elements(); ++i) {
      c.model.mask[i] = one_of(false, true, true);
      if (c.model.mask[i]) c.packed_mask[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
    }
  }
  return c;
}

}  // namespace onebit::testing
