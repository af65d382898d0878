// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts signs and scales back to numbers, without compressing again.
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/reference/average.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"

namespace onebit::kernels::reference {

bool DecodeAverage(const ReduceInput& in, size_t block, void* output) {
  return InDefaultFpEnvironment([&] {
    bool is_finite = true;
    for (size_t i = 0; i < in.count; ++i) {
      float value = 0;
      if (TakesPart(in.mask, i)) {
        const float mean = MeanOfPackets(in, block, i);
        value = in.is_sum ? mean * static_cast<float>(in.ranks) : mean;
      }
      StoreElement(value, in.output_type, i, output);
      is_finite = is_finite && std::isfinite(RoundTo(in.output_type, value));
    }
    return is_finite;
  });
}

bool AddDelta(const DeltaInput& in, size_t block, void* output) {
  return InDefaultFpEnvironment([&] {
    bool is_finite = true;
    for (size_t i = 0; i < in.count; ++i) {
      const float t = in.scales[block == 0 ? 0 : i / block];
      const float held = in.held_in[i] - (BitAt(in.bits, i) ? -t : t);
      in.held_out[i] = TakesPart(in.mask, i) ? held : 0;
      const float value = 0 - in.held_out[i];
      if (output != nullptr) StoreElement(value, in.output_type, i, output);
      is_finite = is_finite && std::isfinite(RoundTo(in.output_type, value));
    }
    return is_finite;
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
