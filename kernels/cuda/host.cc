// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/host.h"

#include "kernels/cuda/kernels-inl.h"
#include "kernels/reference/fp_env.h"

namespace onebit::kernels::cuda {

void RunOnHost(Kernel kernel, const void* params, unsigned ctas) {
  reference::InDefaultFpEnvironment([&] {
    const unsigned count = ctas * kWarpsPerCta;
    for (unsigned index = 0; index < count; ++index) {
      const Warp warp(index, count);
      switch (kernel) {
#define ONEBIT_X(name, type)                            \
  case Kernel::k##name:                                 \
    Run##name(warp, *static_cast<const type*>(params)); \
    break;
        ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
        case Kernel::kCount:
          break;
      }
    }
  });
}

}  // namespace onebit::kernels::cuda
