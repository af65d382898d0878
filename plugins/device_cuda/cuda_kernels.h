// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// KernelLibrary: loads the kernels from the image that this plugin contains.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <span>

#include "kernels/cuda/kernel_table.h"
#include "onebit/onebit.h"
#include "plugins/device_cuda/loaded_driver.h"

namespace onebit::device_cuda {

using kernels::cuda::kKernelCount;

// CTAs of each kernel that are resident at once on a device. More would only wait for those to
// finish.
using KernelLimits = std::array<unsigned, kKernelCount>;

// The image from nvcc: machine code for some architectures, PTX for later ones.
std::span<const std::byte> KernelImage();

// Thread-safe. The driver knows a library's kernels in every context, so one library serves all
// devices. It is never unloaded.
class KernelLibrary {
 public:
  // Loads every kernel into the current context, so that no launch has to: a launch may be captured
  // into a graph, which allows no loading. `limits`, if not null, receives those of the context's
  // device. Slow; allocates device memory.
  onebitResult_t LoadInCurrentContext(const Driver& driver, KernelLimits* limits);

  // Returns a kernel for cuLaunchKernel, in any context in which it was loaded.
  CUfunction function(size_t kernel) const { return functions_[kernel]; }

 private:
  onebitResult_t LoadLibrary(const Driver& driver);

  std::mutex mutex_;  // guards loading; functions_ is constant afterwards
  CUlibrary library_ = nullptr;
  std::array<CUkernel, kKernelCount> kernels_ = {};
  std::array<CUfunction, kKernelCount> functions_ = {};  // the same handles, cast
  // Options and log of the driver's compiler. They are members because the compiler may use them
  // late, when a kernel is first loaded in a context.
  std::array<char, 4096> log_ = {};
  std::array<CUjit_option, 2> compiler_options_ = {CU_JIT_ERROR_LOG_BUFFER,
                                                   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> compiler_values_ = {};
};

}  // namespace onebit::device_cuda
