// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Small codes with a scale per block (kernels/low_bit.h), on host memory.
#pragma once

#include "steps/element_code_ops.h"

namespace onebit {

class LowBitOps final : public ElementCodeOps {
 public:
  using ElementCodeOps::ElementCodeOps;

 private:
  Result EncodeInput(const kernels::CompressInput& in, const Codec& codec,
                     const kernels::Draws& draws, kernels::LowBitPacket out) const override {
    return kernels::cpu::LowBitCompress(in, codec.low_bit_format(), draws, out);
  }
  Result EncodeSum(const kernels::LowBitReduceInput& in, const Codec& codec,
                   const kernels::Draws& draws, kernels::LowBitPacket out) const override {
    return kernels::cpu::LowBitReduce(in, codec.low_bit_format(), draws, out);
  }
  Result DecodeSum(const kernels::LowBitReduceInput& in, const Codec& codec,
                   void* output) const override {
    return kernels::cpu::LowBitAverage(in, codec.low_bit_format(), output);
  }
  Result DecodeDelta(const kernels::LowBitDeltaInput& in, const Codec& codec,
                     void* output) const override {
    return kernels::cpu::LowBitAddDelta(in, codec.low_bit_format(), output);
  }
};

}  // namespace onebit
