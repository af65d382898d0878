// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compiled with instrumentation of memory accesses.
#include "tests/kernels/lock_step_kernels.h"

#include "tests/kernels/lock_step.h"
// The kernels need the built-in functions above.
#include "kernels/cuda/kernels-inl.h"

namespace onebit::kernels::cuda {
namespace {

// Leaves each lane's number in memory and adds all numbers of a warp, as kernels do such things.
void AddNumbers(Fault fault, uint32_t* words, uint32_t* sums) {
  const Warp warp;
  uint32_t* const mine = words + kLanes * warp.index();
  Lanes<uint32_t> numbers;
  warp.ForEachLane([&](unsigned lane) { mine[lane] = lane; });
  if (fault != Fault::kMissingSync) warp.Sync();
  warp.ForEachLane([&](unsigned lane) {
    numbers[lane] = mine[lane ^ 1];
    if (fault == Fault::kShuffleInBranch && lane < kLanes / 2)
      numbers[lane] += warp.Broadcast(numbers, 0);
    if (fault == Fault::kReadsOtherWarp) {
      numbers[lane] = words[kLanes * ((warp.index() + 1) % warp.count()) + lane];
    }
    if (fault == Fault::kMisalignedWord) {
      numbers[lane] = *reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(mine + 8) + 1);
    }
  });
  if (fault == Fault::kEarlyEnd && threadIdx.x % kLanes == 7) return;
  if (fault == Fault::kUnspecifiedShuffle) {
    const Lanes<uint32_t> next = warp.ShuffleDown(numbers, 1);
    warp.ForEachLane([&](unsigned lane) { numbers[lane] = next[lane]; });
  }
  Lanes<bool> is_odd;
  warp.ForEachLane([&](unsigned lane) { is_odd[lane] = numbers[lane] % 2 != 0; });
  const uint32_t odd = warp.Ballot(is_odd);
  const uint32_t sum = SumOf(warp, numbers);
  warp.Once(
      [&] { sums[fault == Fault::kOverwrites ? 0 : warp.index()] = odd == 0x55555555u ? sum : 0; });
}

}  // namespace

void RunFaultyKernel(Fault fault, unsigned ctas, uint32_t seed, uint32_t* words, uint32_t* sums) {
  RunInLockStep(ctas, seed, {}, [&] { AddNumbers(fault, words, sums); });
}

void RunKernelInLockStep(Kernel kernel, const void* params, unsigned ctas, uint32_t seed) {
  const std::span constants(static_cast<const std::byte*>(params),
                            kKernels[static_cast<size_t>(kernel)].param_bytes);
  RunInLockStep(ctas, seed, constants, [&] {
    switch (kernel) {
#define ONEBIT_X(name, type)                              \
  case Kernel::k##name:                                   \
    Run##name(Warp(), *static_cast<const type*>(params)); \
    break;
      ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
      case Kernel::kCount:
        break;
    }
  });
}

}  // namespace onebit::kernels::cuda
