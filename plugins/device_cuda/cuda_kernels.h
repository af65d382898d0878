// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// KernelLibrary: the kernels, loaded from the image that is part of this plugin.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <span>

#include "kernels/cuda/kernel_table.h"
#include "onebit/onebit.h"
#include "plugins/device_cuda/cuda_driver.h"

namespace onebit::device_cuda {

using kernels::cuda::kKernelCount;

// Of a device, by kernel: CTAs that are resident at once. More would only wait for their turn.
using KernelLimits = std::array<unsigned, kKernelCount>;

// The image that nvcc made: machine code for some architectures, PTX for later ones.
std::span<const std::byte> KernelImage();

// Any thread. The driver knows a library's kernels in every context, so one is enough for all
// devices. It is never unloaded.
class KernelLibrary {
 public:
  // Loads every kernel into the current context, so that no launch has to: a launch may be captured
  // into a graph, which allows no loading. `limits`, if not null, receives those of the context's
  // device. Slow; allocates device memory.
  onebitResult_t LoadInCurrentContext(const Driver& driver, KernelLimits* limits);

  // A kernel for cuLaunchKernel in any context in which it was loaded.
  CUfunction function(size_t kernel) const { return functions_[kernel]; }

 private:
  onebitResult_t LoadLibrary(const Driver& driver);

  std::mutex mutex_;  // guards the loading; functions_ is constant after it
  CUlibrary library_ = nullptr;
  std::array<CUkernel, kKernelCount> kernels_ = {};
  std::array<CUfunction, kKernelCount> functions_ = {};  // the same handles
  // What the compiler in the driver says of the image, and what it is told to do with it. Members,
  // because it may read and write them late, when a kernel is first loaded in a context.
  std::array<char, 4096> log_ = {};
  std::array<CUjit_option, 2> compiler_options_ = {CU_JIT_ERROR_LOG_BUFFER,
                                                   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> compiler_values_ = {};
};

}  // namespace onebit::device_cuda
