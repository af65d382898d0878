// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bodies of all kernels: Run<Name>(warp, params) for each name of ONEBIT_CUDA_KERNELS.
#pragma once

#include "kernels/cuda/adam-inl.h"
#include "kernels/cuda/bf16-inl.h"
#include "kernels/cuda/bytes-inl.h"
#include "kernels/cuda/compress-inl.h"
#include "kernels/cuda/copy-inl.h"
#include "kernels/cuda/decode-inl.h"
#include "kernels/cuda/dense-inl.h"
#include "kernels/cuda/headers-inl.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/lamb-inl.h"
#include "kernels/cuda/lossless-inl.h"
#include "kernels/cuda/low_bit-inl.h"
#include "kernels/cuda/reduce-inl.h"
#include "kernels/cuda/sums-inl.h"
#include "kernels/cuda/zero_one-inl.h"

namespace onebit::kernels::cuda {

// The kernels for short lists: instances of the same bodies.
#define ONEBIT_X(name, params)                                                                   \
  ONEBIT_KERNEL void Run##name##Few(const Warp& warp, const ParamsOf<Kernel::k##name##Few>& p) { \
    Run##name(warp, p);                                                                          \
  }
ONEBIT_CUDA_LIST_KERNELS(ONEBIT_X)
#undef ONEBIT_X

// The kernels for lists in memory.
ONEBIT_KERNEL void RunSealLong(const Warp& warp, const SealParamsOf<kInMemory>& p) {
  RunSeal(warp, p);
}
ONEBIT_KERNEL void RunCheckLong(const Warp& warp, const CheckParamsOf<kInMemory>& p) {
  RunCheck(warp, p);
}
ONEBIT_KERNEL void RunFillIfLong(const Warp& warp, const FillParamsOf<kInMemory>& p) {
  RunFillIf(warp, p);
}
ONEBIT_KERNEL void RunCommitLong(const Warp& warp, const CommitParamsOf<kInMemory>& p) {
  RunCommit(warp, p);
}

}  // namespace onebit::kernels::cuda
