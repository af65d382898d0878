// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/level_kinds.h"

namespace onebit::testing {

using kernels::DataType;

std::vector<LevelKind> LevelKinds() {
  return {
      {.name = "SignEf"},
      {.name = "SignPlain", .mode = onebitModePlain},
      {.name = "SignL1", .rule = onebitScaleL1, .block = 64},
      {.name = "SignBf16Residual", .block = 128, .residual_type = onebitBfloat16},
      {.name = "Fp4", .codec = onebitCodecFp4},
      {.name = "Fp4Plain", .codec = onebitCodecFp4, .mode = onebitModePlain},
      {.name = "Int8", .codec = onebitCodecInt8},
      {.name = "Uint8MinMax", .codec = onebitCodecUint8mm},
      {.name = "Int2", .codec = onebitCodecInt2, .block = 256},
      {.name = "Int8Stochastic",
       .codec = onebitCodecInt8Stochastic,
       .mode = onebitModePlain,
       .has_draws = true},
      {.name = "Topk", .codec = onebitCodecTopk, .block = 320},
      {.name = "Randk", .codec = onebitCodecRandk, .block = 320, .has_draws = true},
      {.name = "Bf16", .codec = onebitCodecBf16},
      {.name = "Bf16Plain", .codec = onebitCodecBf16, .mode = onebitModePlain},
  };
}

onebitCompressorConfig_t ConfigOf(const LevelKind& kind, int levels) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = kind.codec;
  config.mode = kind.mode;
  if (kind.rule) config.scaleRule = *kind.rule;
  if (kind.block) config.block = *kind.block;
  if (kind.codec == onebitCodecTopk || kind.codec == onebitCodecRandk) {
    config.hops = 2;
    config.k = 20;
  }
  config.residualType = kind.residual_type;
  config.levels = levels;
  return config;
}

Tensors RandomTensors(size_t ranks, size_t count, DataType type, std::mt19937& random) {
  Tensors tensors;
  for (size_t rank = 0; rank < ranks; ++rank) tensors.emplace_back(count, type).FillNormal(random);
  return tensors;
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  std::vector<float> values;
  for (size_t i = 0; i < tensor.count(); ++i) values.push_back(tensor.Get(i));
  return values;
}

std::vector<float> WeightsOf(const std::vector<float>& weights, const HostMap& hosts) {
  std::vector<float> sums;
  for (uint32_t host = 0; host < hosts.hosts(); ++host) {
    float sum = 0;
    for (const uint32_t rank : hosts.RanksOn(host)) sum += weights[rank];
    sums.push_back(sum);
  }
  return sums;
}

std::vector<std::vector<float>> MeansOf(const Tensors& inputs, const HostMap& hosts,
                                        const std::vector<float>& weights) {
  std::vector<std::vector<float>> means;
  for (uint32_t host = 0; host < hosts.hosts(); ++host) {
    std::vector<float> mean(inputs[0].count());
    for (size_t i = 0; i < mean.size(); ++i) {
      float sum = -0.0f;
      for (const uint32_t rank : hosts.RanksOn(host)) {
        if (weights[rank] != 0) sum += weights[rank] * inputs[rank].Get(i);
      }
      const auto here = hosts.RanksOn(host);
      mean[i] = here.size() == 1 ? inputs[here[0]].Get(i) : sum / WeightsOf(weights, hosts)[host];
    }
    means.push_back(std::move(mean));
  }
  return means;
}
std::vector<std::vector<float>> MeansOf(const Tensors& inputs, const HostMap& hosts) {
  return MeansOf(inputs, hosts, std::vector<float>(inputs.size(), 1.0f));
}

}  // namespace onebit::testing
