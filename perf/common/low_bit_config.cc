// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/low_bit_config.h"

#include "perf/common/seeded_elements.h"

namespace onebit::perf {

kernels::LowBitCodec KernelCodec(onebitCodec_t codec) {
  switch (codec) {
    case onebitCodecInt8:
      return kernels::LowBitCodec::kInt8;
    case onebitCodecUint8mm:
      return kernels::LowBitCodec::kUint8;
    case onebitCodecInt2:
      return kernels::LowBitCodec::kInt2;
    case onebitCodecInt8Stochastic:
      return kernels::LowBitCodec::kInt8Stochastic;
    case onebitCodecFp4:
    case onebitCodecSign:
    case onebitCodecTopk:
    case onebitCodecRandk:
      break;
  }
  return kernels::LowBitCodec::kFp4;
}

kernels::reference::LowBitConfig LowBitConfigOf(const Case& row, const CodecChoice& choice) {
  kernels::reference::LowBitConfig config;
  config.ranks = static_cast<size_t>(row.ranks);
  config.count = row.count;
  config.type = KernelType(row.type);
  config.format = {KernelCodec(choice.codec), static_cast<size_t>(choice.block)};
  config.is_sum = row.op == onebitSum;
  config.has_feedback = choice.mode == Mode::kEf;
  config.tensor_id = kModelTensorId;
  return config;
}

kernels::reference::SparseConfig SparseConfigOf(const Case& row, const CodecChoice& choice) {
  kernels::reference::SparseConfig config;
  config.ranks = static_cast<size_t>(row.ranks);
  config.count = row.count;
  config.type = KernelType(row.type);
  config.has_feedback = choice.mode == Mode::kEf;
  const bool is_random = choice.codec == onebitCodecRandk;
  config.format = {
      {.k = static_cast<uint16_t>(choice.k),
       .values = choice.values == onebitValuesFloat32 ? kernels::SparseValues::kF32
                                                      : kernels::SparseValues::kTwoMagnitudes,
       .is_random = is_random,
       .is_unbiased = is_random && !config.has_feedback},
      static_cast<size_t>(choice.block)};
  config.hops = choice.HopsOf(row.ranks);
  config.is_sum = row.op == onebitSum;
  config.tensor_id = kModelTensorId;
  return config;
}

}  // namespace onebit::perf
