// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction.
#include "kernels/kernels.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"

namespace onebit::kernels::reference {

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type,
                 bool is_average, void* output) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < count; ++i) {
      float sum = LoadElement(inputs[0], type, i);
      for (size_t rank = 1; rank < ranks; ++rank) sum += LoadElement(inputs[rank], type, i);
      StoreElement(is_average ? sum / static_cast<float>(ranks) : sum, type, i, output);
    }
  });
}

}  // namespace onebit::kernels::reference
