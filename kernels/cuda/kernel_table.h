// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table of CUDA kernels: their names in the device code, and the parameters of a launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/low_bit_params.h"
#include "kernels/cuda/params.h"
#include "kernels/optimizer_kernels.h"

namespace onebit::kernels::cuda {

// A kernel's enumerator is "k" plus its name, its symbol "onebit" plus its name.
//
// Kernels that work on lists: R(X, name, type of the parameters of a list, its longest length, its
// length in a second instance for short lists, warps that share a tile).
#define ONEBIT_CUDA_LIST_ROWS(R, X)                                                    \
  R(X, CompressBlocks, CompressParamsOf, kMaxPieces, kFewPieces, 1)                    \
  R(X, CompressSigns, CompressParamsOf, kMaxPieces, kFewPieces, 1)                     \
  R(X, CompressResidual, CompressParamsOf, kMaxPieces, kFewPieces, kTileParts)         \
  R(X, ReduceBlocks, ReduceParamsOf, kMaxPieces, kFewPieces, 1)                        \
  R(X, ReduceSigns, ReduceParamsOf, kMaxPieces, kFewPieces, 1)                         \
  R(X, ReduceResidual, ReduceParamsOf, kMaxPieces, kFewPieces, kTileParts)             \
  R(X, FinishScale, FinishScaleParamsOf, kMaxPieces, kFewPieces, 1)                    \
  R(X, DecodeAverage, ReduceParamsOf, kMaxPieces, kFewPieces, kTileParts)              \
  R(X, Decode, DecodeParamsOf, kMaxPieces, kFewPieces, kTileParts)                     \
  R(X, AddDelta, DecodeParamsOf, kMaxPieces, kFewPieces, kTileParts)                   \
  R(X, LowBitCompress, LowBitCompressParamsOf, kMaxLowBitPieces, kFewPieces, 1)        \
  R(X, LowBitReduce, LowBitReduceParamsOf, kMaxLowBitPieces, kFewPieces, 1)            \
  R(X, LowBitAverage, LowBitReduceParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts)  \
  R(X, LowBitDecode, LowBitDecodeParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts)   \
  R(X, LowBitAddDelta, LowBitDecodeParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts) \
  R(X, Bf16Compress, LowBitCompressParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts) \
  R(X, Bf16Reduce, LowBitReduceParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts)     \
  R(X, Bf16Average, LowBitReduceParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts)    \
  R(X, Bf16Decode, LowBitDecodeParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts)     \
  R(X, Bf16AddDelta, LowBitDecodeParamsOf, kMaxLowBitPieces, kFewPieces, kTileParts)   \
  R(X, Copy, CopyParamsOf, kMaxPieces, kFewPieces, kTileParts)                         \
  R(X, Seal, SealParamsOf, kMaxCallMessages, kFewCallMessages, 1)                      \
  R(X, Check, CheckParamsOf, kMaxCallMessages, kFewCallMessages, 1)                    \
  R(X, FillIf, FillParamsOf, kMaxPieces, kFewPieces, 1)                                \
  R(X, Commit, CommitParamsOf, kMaxPieces, kFewPieces, 1)
#define ONEBIT_CUDA_LONGEST(X, name, Params, kMost, kFew, kParts) X(name, Params<kMost>)
#define ONEBIT_CUDA_SHORT(X, name, Params, kMost, kFew, kParts) X(name##Few, Params<kFew>)

// X(name, type of its parameters)
#define ONEBIT_CUDA_LIST_KERNELS(X) ONEBIT_CUDA_LIST_ROWS(ONEBIT_CUDA_LONGEST, X)
// The instances for short lists, in the same order.
#define ONEBIT_CUDA_FEW_KERNELS(X) ONEBIT_CUDA_LIST_ROWS(ONEBIT_CUDA_SHORT, X)

// The same for lists in memory of the device. Only these kernels have them: pieces fill launches of
// their own.
#define ONEBIT_CUDA_LONG_KERNELS(X)      \
  X(SealLong, SealParamsOf<kInMemory>)   \
  X(CheckLong, CheckParamsOf<kInMemory>) \
  X(FillIfLong, FillParamsOf<kInMemory>) \
  X(CommitLong, CommitParamsOf<kInMemory>)

#define ONEBIT_CUDA_KERNELS(X)            \
  ONEBIT_CUDA_LIST_KERNELS(X)             \
  ONEBIT_CUDA_FEW_KERNELS(X)              \
  ONEBIT_CUDA_LONG_KERNELS(X)             \
  X(DenseReduce, DenseReduceParams)       \
  X(DenseReduceWords, DenseReduceParams)  \
  X(Checksum, ChecksumParams)             \
  X(LosslessMeasure, LosslessParams)      \
  X(LosslessWrite, LosslessParams)        \
  X(LosslessDecode, LosslessParams)       \
  X(LosslessDigest, LosslessDigestParams) \
  X(FinishSum, SumParams)                 \
  X(FinishLamb, LambParams)               \
  ONEBIT_OPTIMIZER_KERNELS(X)

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

constexpr Kernel KernelFor(OptimizerKernel kernel) {
  return static_cast<Kernel>(static_cast<uint32_t>(Kernel::kSumOfSquares) +
                             static_cast<uint32_t>(kernel));
}
static_assert(KernelFor(OptimizerKernel::kRefreshVariance) == Kernel::kRefreshVariance);

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
