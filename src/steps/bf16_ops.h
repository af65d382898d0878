// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers as bf16 (kernels/bf16.h), on host memory.
#pragma once

#include "kernels/bf16.h"
#include "steps/element_code_ops.h"

namespace onebit {

class Bf16Ops final : public ElementCodeOps {
 public:
  using ElementCodeOps::ElementCodeOps;

 private:
  Result EncodeInput(const kernels::CompressInput& in, const Codec& /*codec*/,
                     const kernels::Draws& /*draws*/, kernels::LowBitPacket out) const override {
    return kernels::cpu::Bf16Compress(in, out);
  }
  Result EncodeSum(const kernels::LowBitReduceInput& in, const Codec& /*codec*/,
                   const kernels::Draws& /*draws*/, kernels::LowBitPacket out) const override {
    return kernels::cpu::Bf16Reduce(in, out);
  }
  Result DecodeSum(const kernels::LowBitReduceInput& in, const Codec& /*codec*/,
                   void* output) const override {
    return kernels::cpu::Bf16Average(in, output);
  }
  Result DecodeDelta(const kernels::LowBitDeltaInput& in, const Codec& /*codec*/,
                     void* output) const override {
    return kernels::cpu::Bf16AddDelta(in, output);
  }
};

}  // namespace onebit
