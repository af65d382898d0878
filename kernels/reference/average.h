// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The mean of the packets of all ranks at one element.
#pragma once

#include <cstddef>

#include "kernels/kernels.h"
#include "kernels/reference/elements.h"

namespace onebit::kernels::reference {

// The server's y without mask and residual. `block` == 0: one scale per packet.
inline float MeanOfPackets(const ReduceInput& in, size_t block, size_t i) {
  float mean = 0;
  for (size_t rank = 0; rank < in.ranks; ++rank) {
    const float weight = in.scales[rank][block == 0 ? 0 : i / block] / static_cast<float>(in.ranks);
    const float term = BitAt(in.bits[rank], i) ? -weight : weight;
    // Starting from the first term instead of 0 preserves a -0.
    mean = rank == 0 ? term : mean + term;
  }
  return mean;
}

}  // namespace onebit::kernels::reference
