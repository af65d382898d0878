// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table of CUDA kernels: their names in the device code, and the parameters of a launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/low_bit_params.h"
#include "kernels/cuda/params.h"

namespace onebit::kernels::cuda {

// X(name, type of its parameters). A kernel's enumerator is "k" plus its name, its symbol "onebit"
// plus its name.
//
// Kernels that work on lists (kMaxPieces, kMaxLowBitPieces, kMaxCallMessages):
#define ONEBIT_CUDA_LIST_KERNELS(X)       \
  X(CompressBlocks, CompressParams)       \
  X(CompressSigns, CompressParams)        \
  X(CompressResidual, CompressParams)     \
  X(ReduceBlocks, ReduceParams)           \
  X(ReduceSigns, ReduceParams)            \
  X(ReduceResidual, ReduceParams)         \
  X(FinishScale, FinishScaleParams)       \
  X(DecodeAverage, ReduceParams)          \
  X(Decode, DecodeParams)                 \
  X(AddDelta, DecodeParams)               \
  X(LowBitCompress, LowBitCompressParams) \
  X(LowBitReduce, LowBitReduceParams)     \
  X(LowBitAverage, LowBitReduceParams)    \
  X(LowBitDecode, LowBitDecodeParams)     \
  X(LowBitAddDelta, LowBitDecodeParams)   \
  X(Copy, CopyParams)                     \
  X(Seal, SealParams)                     \
  X(Check, CheckParams)                   \
  X(FillIf, FillParams)                   \
  X(Commit, CommitParams)
// The same for short lists, in the same order.
#define ONEBIT_CUDA_FEW_KERNELS(X)                         \
  X(CompressBlocksFew, CompressParamsOf<kFewPieces>)       \
  X(CompressSignsFew, CompressParamsOf<kFewPieces>)        \
  X(CompressResidualFew, CompressParamsOf<kFewPieces>)     \
  X(ReduceBlocksFew, ReduceParamsOf<kFewPieces>)           \
  X(ReduceSignsFew, ReduceParamsOf<kFewPieces>)            \
  X(ReduceResidualFew, ReduceParamsOf<kFewPieces>)         \
  X(FinishScaleFew, FinishScaleParamsOf<kFewPieces>)       \
  X(DecodeAverageFew, ReduceParamsOf<kFewPieces>)          \
  X(DecodeFew, DecodeParamsOf<kFewPieces>)                 \
  X(AddDeltaFew, DecodeParamsOf<kFewPieces>)               \
  X(LowBitCompressFew, LowBitCompressParamsOf<kFewPieces>) \
  X(LowBitReduceFew, LowBitReduceParamsOf<kFewPieces>)     \
  X(LowBitAverageFew, LowBitReduceParamsOf<kFewPieces>)    \
  X(LowBitDecodeFew, LowBitDecodeParamsOf<kFewPieces>)     \
  X(LowBitAddDeltaFew, LowBitDecodeParamsOf<kFewPieces>)   \
  X(CopyFew, CopyParamsOf<kFewPieces>)                     \
  X(SealFew, SealParamsOf<kFewCallMessages>)               \
  X(CheckFew, CheckParamsOf<kFewCallMessages>)             \
  X(FillIfFew, FillParamsOf<kFewPieces>)                   \
  X(CommitFew, CommitParamsOf<kFewPieces>)

// The same for lists in memory of the device. Only these kernels have them: pieces fill launches of
// their own.
#define ONEBIT_CUDA_LONG_KERNELS(X)      \
  X(SealLong, SealParamsOf<kInMemory>)   \
  X(CheckLong, CheckParamsOf<kInMemory>) \
  X(FillIfLong, FillParamsOf<kInMemory>) \
  X(CommitLong, CommitParamsOf<kInMemory>)

#define ONEBIT_CUDA_KERNELS(X)                  \
  ONEBIT_CUDA_LIST_KERNELS(X)                   \
  ONEBIT_CUDA_FEW_KERNELS(X)                    \
  ONEBIT_CUDA_LONG_KERNELS(X)                   \
  X(DenseReduce, DenseReduceParams)             \
  X(DenseReduceWords, DenseReduceParams)        \
  X(Checksum, ChecksumParams)                   \
  X(SumOfSquares, SumParams)                    \
  X(SumOfMagnitudes, SumParams)                 \
  X(FinishSum, SumParams)                       \
  X(MaskOfNonzero, MaskParams)                  \
  X(AdamDense, AdamUpdate)                      \
  X(AdamFrozen, AdamUpdate)                     \
  X(LocalMomentum, LocalMomentumParams)         \
  X(LambDense, LambParams)                      \
  X(LambFrozen, LambParams)                     \
  X(FinishLamb, LambParams)                     \
  X(ZeroOneLocal, ZeroOneUpdate)                \
  X(ZeroOneAccumulate, ZeroOneAccumulateParams) \
  X(ZeroOneSync, ZeroOneUpdate)                 \
  X(RefreshVariance, RefreshVarianceParams)

enum class Kernel : uint32_t {
#define ONEBIT_X(name, params) k##name,
  ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
      kCount
};

// The parameters of a kernel: ParamsOf<Kernel::kCopy> is CopyParams.
template <Kernel kKernel>
struct ParamsOfKernel;
#define ONEBIT_X(name, params)             \
  template <>                              \
  struct ParamsOfKernel<Kernel::k##name> { \
    using Type = params;                   \
  };
ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
template <Kernel kKernel>
using ParamsOf = typename ParamsOfKernel<kKernel>::Type;

// The kernel for a dense reduction.
constexpr Kernel DenseKernelFor(const DenseReduceParams& params) {
  return IsOfWords(params.type, params.op) ? Kernel::kDenseReduceWords : Kernel::kDenseReduce;
}

inline constexpr size_t kKernelCount = static_cast<size_t>(Kernel::kCount);

// A block (CTA) has kWarpsPerCta warps. A kernel does all its work for any number of CTAs: warps
// take tiles round-robin, the first warps of all CTAs before the second ones. So a CTA for each
// tile spreads few tiles over as many multiprocessors.
inline constexpr unsigned kWarpsPerCta = 4;

struct KernelEntry {
  const char* symbol;
  size_t param_bytes;
};

// Indexed by Kernel.
inline constexpr KernelEntry kKernels[kKernelCount] = {
#define ONEBIT_X(name, params) {"onebit" #name, sizeof(params)},
    ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X
};

// Returns the number of warps that have work, for the choice of how many CTAs to launch.
uint64_t WarpsFor(Kernel kernel, const void* params);

// Returns the kernel for short lists if `kernel` works on lists and that of `params` is short. It
// takes the same parameters.
Kernel ShortestFor(Kernel kernel, const void* params);

}  // namespace onebit::kernels::cuda
