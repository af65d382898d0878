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

}  // namespace onebit::perf
