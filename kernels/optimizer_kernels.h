// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of an optimizer as numbers with parameters, so that its step is written once for the
// host and for devices.
#pragma once

#include <cstdint>

#include "kernels/lamb.h"
#include "kernels/optimizer.h"
#include "kernels/types.h"
#include "kernels/zero_one.h"

namespace onebit::kernels {

// Scratch memory (tile_sums, tiles) is for devices, where blocks of threads leave partial results
// for a second kernel. The host's kernels ignore it.

// Partial sums of a scale that spans several blocks.
struct TileSum {
  double sum = 0;
  uint64_t element_count = 0;  // elements that take part
};

// kSumOfSquares, kSumOfMagnitudes: tile_sums[i] is the sum of elements [i * kTensorSumBlock, ...);
// cuda::Kernel::kFinishSum sets *sum to their total, in index order.
struct SumParams {
  const void* values = nullptr;
  DataType type = DataType::kF32;
  uint64_t count = 0;
  TileSum* tile_sums = nullptr;
  double* sum = nullptr;
};

// kMaskOfNonzero: adds the number of set bits to *set_bits.
struct MaskParams {
  const float* v = nullptr;
  uint64_t count = 0;
  uint8_t* mask = nullptr;
  unsigned long long* set_bits = nullptr;
};

// kLocalMomentum.
struct LocalMomentumParams {
  const float* m = nullptr;
  const void* g = nullptr;
  DataType g_type = DataType::kF32;
  float g_scale = 1;
  float beta1 = 0;
  float one_minus_beta1 = 0;
  const uint8_t* mask = nullptr;
  uint64_t count = 0;
  float* out = nullptr;
};

// kRefreshVariance.
struct RefreshVarianceParams {
  const float* v = nullptr;
  const void* input = nullptr;
  DataType type = DataType::kF32;
  float input_scale = 1;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  uint64_t count = 0;
  float* out = nullptr;
};

// kZeroOneAccumulate.
struct ZeroOneAccumulateParams {
  ZeroOneUpdate update;
  float* out = nullptr;
};

// kLambDense, kLambFrozen: update the moments and compute one LambTile per kTensorSumBlock
// elements, from which cuda::Kernel::kFinishLamb computes *norms.
struct LambTile {
  double x_squared = 0;
  double update_squared = 0;
  double decayed_squared = 0;
  float max_ratio = 0;
};
struct LambParams {
  LambUpdate update;
  LambTile* tiles = nullptr;  // [BlockCount(count, kTensorSumBlock)]
  LambNorms* norms = nullptr;
};

// X(name, type of its parameters). A kernel's enumerator is "k" plus its name.
#define ONEBIT_OPTIMIZER_KERNELS(X)             \
  X(SumOfSquares, SumParams)                    \
  X(SumOfMagnitudes, SumParams)                 \
  X(MaskOfNonzero, MaskParams)                  \
  X(AdamDense, AdamUpdate)                      \
  X(AdamFrozen, AdamUpdate)                     \
  X(LocalMomentum, LocalMomentumParams)         \
  X(LambDense, LambParams)                      \
  X(LambFrozen, LambParams)                     \
  X(ZeroOneLocal, ZeroOneUpdate)                \
  X(ZeroOneAccumulate, ZeroOneAccumulateParams) \
  X(ZeroOneSync, ZeroOneUpdate)                 \
  X(RefreshVariance, RefreshVarianceParams)

enum class OptimizerKernel : uint32_t {
#define ONEBIT_X(name, params) k##name,
  ONEBIT_OPTIMIZER_KERNELS(ONEBIT_X)
#undef ONEBIT_X
};

// The parameters of a kernel: OptimizerParamsOf<OptimizerKernel::kAdamDense> is AdamUpdate.
template <OptimizerKernel kKernel>
struct ParamsOfOptimizerKernel;
#define ONEBIT_X(name, params)                               \
  template <>                                                \
  struct ParamsOfOptimizerKernel<OptimizerKernel::k##name> { \
    using Type = params;                                     \
  };
ONEBIT_OPTIMIZER_KERNELS(ONEBIT_X)
#undef ONEBIT_X
template <OptimizerKernel kKernel>
using OptimizerParamsOf = typename ParamsOfOptimizerKernel<kKernel>::Type;

}  // namespace onebit::kernels
