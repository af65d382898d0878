// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codecs of calls in two levels, their inputs, and the means that hosts make of these.
#pragma once

#include <optional>
#include <ostream>
#include <random>
#include <vector>

#include "onebit/onebit.h"
#include "tests/support/comm_group.h"
#include "tests/support/tensor.h"

namespace onebit::testing {

// A codec whose draws, if it has any, depend on the rank: then the comparison cannot be exact.
struct LevelKind {
  const char* name;
  onebitCodec_t codec = onebitCodecSign;
  onebitMode_t mode = onebitModeEf;
  std::optional<onebitScaleRule_t> rule = {};
  std::optional<int32_t> block = {};
  bool has_draws = false;
  onebitDataType_t residual_type = onebitFloat32;
};
inline std::ostream& operator<<(std::ostream& out, const LevelKind& kind) {
  return out << kind.name;
}

std::vector<LevelKind> LevelKinds();

onebitCompressorConfig_t ConfigOf(const LevelKind& kind, int levels);

// The tensors of all ranks, one for each call.
using Tensors = std::vector<Tensor>;
Tensors RandomTensors(size_t ranks, size_t count, kernels::DataType type, std::mt19937& random);

std::vector<float> FloatsOf(const Tensor& tensor);

// The sum of the weights of each host's ranks.
std::vector<float> WeightsOf(const std::vector<float>& weights, const HostMap& hosts);

// The weighted mean of each host's tensors in fp32, of the ranks that are present.
std::vector<std::vector<float>> MeansOf(const Tensors& inputs, const HostMap& hosts,
                                        const std::vector<float>& weights);
std::vector<std::vector<float>> MeansOf(const Tensors& inputs, const HostMap& hosts);

}  // namespace onebit::testing
