// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs CUDA kernels in lock step, each launch with another number of CTAs and in another order.
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/lock_step_kernels.h"

namespace onebit::kernels::cuda {

void RunKernel(Kernel kernel, const void* params) {
  constexpr unsigned kCtas[] = {1, 2, 3};
  const unsigned ctas = kCtas[NextChoice() % 3];
  RunKernelInLockStep(kernel, params, ctas, NextChoice());
}

// In lock step, a repetition takes a second or more.
int Repetitions(int most) { return most / 4; }

}  // namespace onebit::kernels::cuda
