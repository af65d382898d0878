// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels by number: their names in the device code, and how each is launched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/params.h"

namespace onebit::kernels::cuda {

// X(enumerator, type of its parameters). The kernel's symbol is "onebit" followed by its
// enumerator.
#define ONEBIT_CUDA_KERNELS(X)                   \
  X(kCompressBlocks, CompressParams)             \
  X(kCompressSigns, CompressParams)              \
  X(kCompressResidual, CompressParams)           \
  X(kReduceBlocks, ReduceParams)                 \
  X(kReduceSigns, ReduceParams)                  \
  X(kReduceResidual, ReduceParams)               \
  X(kFinishScale, FinishScaleParams)             \
  X(kDecodeAverage, ReduceParams)                \
  X(kDecode, DecodeParams)                       \
  X(kAddDelta, DecodeParams)                     \
  X(kCopy, CopyParams)                           \
  X(kDenseReduce, DenseReduceParams)             \
  X(kChecksum, ChecksumParams)                   \
  X(kSeal, SealParams)                           \
  X(kCheck, CheckParams)                         \
  X(kFillIf, FillParams)                         \
  X(kCommit, CommitParams)                       \
  X(kSumOfSquares, SumParams)                    \
  X(kSumOfMagnitudes, SumParams)                 \
  X(kFinishSum, SumParams)                       \
  X(kMaskOfNonzero, MaskParams)                  \
  X(kAdamDense, AdamUpdate)                      \
  X(kAdamFrozen, AdamUpdate)                     \
  X(kLocalMomentum, LocalMomentumParams)         \
  X(kLambDense, LambParams)                      \
  X(kLambFrozen, LambParams)                     \
  X(kFinishLamb, LambParams)                     \
  X(kZeroOneLocal, ZeroOneUpdate)                \
  X(kZeroOneAccumulate, ZeroOneAccumulateParams) \
  X(kZeroOneSync, ZeroOneUpdate)                 \
  X(kRefreshVariance, RefreshVarianceParams)

enum class Kernel : uint32_t {
#define ONEBIT_X(name, params) name,
  ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
      kCount
};

inline constexpr size_t kKernelCount = static_cast<size_t>(Kernel::kCount);

// Threads of a block (CTA) are kWarpsPerCta warps. A kernel does all its work for any number of
// CTAs: warps take tiles in turns.
inline constexpr unsigned kWarpsPerCta = 4;

struct KernelEntry {
  const char* symbol;
  size_t param_bytes;
};

// By Kernel.
inline constexpr KernelEntry kKernels[kKernelCount] = {
#define ONEBIT_X(name, params) {"onebit" #name, sizeof(params)},
    ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
};

// Warps that find something to do, for the choice of how many CTAs to launch.
uint64_t WarpsFor(Kernel kernel, const void* params);

}  // namespace onebit::kernels::cuda
