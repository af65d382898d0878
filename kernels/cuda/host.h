// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels as host code: the same bodies, with a warp as a loop over its 32 lanes.
#pragma once

#include "kernels/cuda/kernel_table.h"

namespace onebit::kernels::cuda {

// Runs a launch of `ctas` CTAs to its end. `params` must have the type of the kernel's entry in
// ONEBIT_CUDA_KERNELS. Results do not depend on `ctas`.
void RunOnHost(Kernel kernel, const void* params, unsigned ctas);

}  // namespace onebit::kernels::cuda
