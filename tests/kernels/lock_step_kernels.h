// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Kernels in lock step: those of the library, and ones with a mistake that must be found.
#pragma once

#include <cstdint>

#include "kernels/cuda/kernel_table.h"

namespace onebit::kernels::cuda {

// Runs a launch of `ctas` CTAs to its end. Throws std::runtime_error if a rule is broken.
void RunKernelInLockStep(Kernel kernel, const void* params, unsigned ctas, uint32_t seed);

enum class Fault {
  kNone,
  kShuffleInBranch,    // half of the lanes go to a shuffle, the others on to a ballot
  kEarlyEnd,           // a lane ends before the others shuffle
  kReadsOtherWarp,     // warps read what another one writes in the same launch
  kOverwrites,         // all warps write one word
  kMissingSync,        // a lane reads what its neighbour wrote, without __syncwarp
  kMisalignedWord,     // a 4-byte load at an odd address
  kUnspecifiedShuffle  // uses what a shuffle gives to the last lane
};

// Sums the numbers 0 to 31 in each warp, with the fault. words[] has 32 per warp, which it
// overwrites; sums[] one.
void RunFaultyKernel(Fault fault, unsigned ctas, uint32_t seed, uint32_t* words, uint32_t* sums);

}  // namespace onebit::kernels::cuda
