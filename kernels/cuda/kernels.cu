// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Instantiates the kernels for devices. Launch shape: any number of CTAs of kWarpsPerCta warps, no
// dynamic shared memory.
#include "kernels/cuda/kernels-inl.h"

namespace onebit::kernels::cuda {
namespace {

// The number of CTAs that a multiprocessor must be able to hold, which bounds the registers of a
// thread. If a whole tile is in registers that is 168 for three, or 255 for two: processors other
// than sm_90 need more of them for addresses. Such a warp has enough loads in flight by itself.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
constexpr unsigned kTileCtas = 2;
#else
constexpr unsigned kTileCtas = 3;
#endif

constexpr unsigned MinCtas(Kernel kernel) {
  switch (kernel) {
    case Kernel::kCompressBlocks:
    case Kernel::kCompressBlocksFew:
    case Kernel::kCompressSigns:
    case Kernel::kCompressSignsFew:
    case Kernel::kReduceBlocks:
    case Kernel::kReduceBlocksFew:
    case Kernel::kReduceSigns:
    case Kernel::kReduceSignsFew:
      return kTileCtas;
    // Code for five codecs, of which the longest decides.
    case Kernel::kLowBitCompress:
    case Kernel::kLowBitCompressFew:
    case Kernel::kLowBitReduce:
    case Kernel::kLowBitReduceFew:
      return 4;
    default:
      return 6;
  }
}

}  // namespace

#define ONEBIT_X(name, params)                                                                 \
  extern "C" __global__ void __launch_bounds__(kWarpsPerCta* kLanes, MinCtas(Kernel::k##name)) \
      onebit##name(const __grid_constant__ params p) {                                         \
    Run##name(Warp(), p);                                                                      \
  }
ONEBIT_CUDA_KERNELS(ONEBIT_X)
#undef ONEBIT_X

}  // namespace onebit::kernels::cuda
