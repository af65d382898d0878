// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/low_bit_config.h"

#include "perf/common/codec_table.h"
#include "perf/common/seeded_elements.h"

namespace onebit::perf {

model::LowBitConfig LowBitConfigOf(const Case& row, const CodecChoice& choice) {
  model::LowBitConfig config;
  SetRanks(row, &config);
  config.count = row.count;
  config.type = KernelType(row.type);
  SetCodec(choice.codec, choice.block, &config);
  config.is_sum = row.op == onebitSum;
  config.has_feedback = choice.mode == Mode::kEf;
  config.tensor_id = kModelTensorId;
  return config;
}

model::SparseConfig SparseConfigOf(const Case& row, const CodecChoice& choice) {
  model::SparseConfig config;
  SetRanks(row, &config);
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
