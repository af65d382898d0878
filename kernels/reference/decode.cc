// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Signs and scales back to numbers, without compressing again.
#include "kernels/kernels.h"
#include "kernels/reference/average.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"

namespace onebit::kernels::reference {

void DecodeAverage(const ReduceInput& in, size_t block, float* output) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < in.count; ++i) {
      if (!TakesPart(in.mask, i)) {
        output[i] = 0;
        continue;
      }
      const float mean = MeanOfPackets(in, block, i);
      output[i] = in.is_sum ? mean * static_cast<float>(in.ranks) : mean;
    }
  });
}

void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < count; ++i) {
      const float t = scales[block == 0 ? 0 : i / block];
      const float value = BitAt(bits, i) ? -t : t;
      StoreElement(TakesPart(mask, i) ? value : 0, output_type, i, output);
    }
  });
}

}  // namespace onebit::kernels::reference
