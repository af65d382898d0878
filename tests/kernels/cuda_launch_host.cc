// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs CUDA kernels as host code, each launch with another number of CTAs.
#include "kernels/cuda/host.h"
#include "tests/kernels/cuda_launch.h"

namespace onebit::kernels::cuda {

void RunKernel(Kernel kernel, const void* params) {
  constexpr unsigned kCtas[] = {1, 2, 3, 7, 40};
  RunOnHost(kernel, params, kCtas[NextChoice() % 5]);
}

int Repetitions(int most) { return most; }

}  // namespace onebit::kernels::cuda
