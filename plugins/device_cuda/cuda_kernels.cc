// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/cuda_kernels.h"

#include <algorithm>
#include <cstdint>

#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {
namespace {

using kernels::cuda::kKernels;
using kernels::cuda::kWarpsPerCta;

constexpr int kThreadsPerCta = 32 * static_cast<int>(kWarpsPerCta);

// Sets *resident to the number of CTAs of `function` that the current device runs at once.
onebitResult_t CountResident(const Driver& driver, CUfunction function, const char* symbol,
                             unsigned* resident) {
  int max_threads = 0;
  ONEBIT_CUDA_TRY(Check(
      driver,
      driver.cuFuncGetAttribute(&max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function),
      "cuFuncGetAttribute of {}", symbol));
  if (max_threads < kThreadsPerCta) {
    return Fail(onebitInternalError, "kernel {} runs with {} threads per CTA, not with {}", symbol,
                max_threads, kThreadsPerCta);
  }
  int per_multiprocessor = 0;
  ONEBIT_CUDA_TRY(Check(driver,
                        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                            &per_multiprocessor, function, kThreadsPerCta, 0),
                        "cuOccupancyMaxActiveBlocksPerMultiprocessor of {}", symbol));
  CUdevice device = -1;
  int multiprocessors = 0;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetDevice(&device), "cuCtxGetDevice"));
  ONEBIT_CUDA_TRY(Check(driver,
                        driver.cuDeviceGetAttribute(
                            &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
                        "cuDeviceGetAttribute"));
  *resident = static_cast<unsigned>(std::max(1, per_multiprocessor * multiprocessors));
  return onebitSuccess;
}

}  // namespace

onebitResult_t KernelLibrary::LoadLibrary(const Driver& driver) {
  // The driver overwrites the second value by the number of bytes it has logged.
  compiler_values_ = {log_.data(), reinterpret_cast<void*>(uintptr_t{log_.size()})};
  CUlibrary library = nullptr;
  if (const CUresult error = driver.cuLibraryLoadData(
          &library, KernelImage().data(), compiler_options_.data(), compiler_values_.data(),
          static_cast<unsigned>(compiler_options_.size()), nullptr, nullptr, 0);
      error != CUDA_SUCCESS) {
    return Check(driver, error, "loading the kernels{}{}", log_[0] == '\0' ? "" : ", ",
                 log_.data());
  }
  onebitResult_t result = onebitSuccess;
  for (size_t i = 0; i < kKernelCount && result == onebitSuccess; ++i) {
    result = Check(driver, driver.cuLibraryGetKernel(&kernels_[i], library, kKernels[i].symbol),
                   "finding kernel {}", kKernels[i].symbol);
    // CUDA allows passing a CUkernel, cast to CUfunction, to cuLaunchKernel.
    functions_[i] = reinterpret_cast<CUfunction>(kernels_[i]);
  }
  if (result == onebitSuccess) {
    library_ = library;
  } else {
    driver.cuLibraryUnload(library);
  }
  return result;
}

onebitResult_t KernelLibrary::LoadInCurrentContext(const Driver& driver, KernelLimits* limits) {
  const std::lock_guard lock(mutex_);
  if (library_ == nullptr) ONEBIT_CUDA_TRY(LoadLibrary(driver));
  for (size_t i = 0; i < kKernelCount; ++i) {
    const char* const symbol = kKernels[i].symbol;
    CUfunction function = nullptr;
    // Called before the error text is built, because the call writes the log.
    const CUresult found = driver.cuKernelGetFunction(&function, kernels_[i]);
    ONEBIT_CUDA_TRY(Check(driver, found, "loading kernel {}{}{}", symbol,
                          log_[0] == '\0' ? "" : ", ", log_.data()));
    if (driver.cuFuncLoad != nullptr) {
      ONEBIT_CUDA_TRY(Check(driver, driver.cuFuncLoad(function), "loading kernel {}", symbol));
    }
    // This also loads the kernel with a driver that defers loading and has no cuFuncLoad.
    unsigned resident = 0;
    ONEBIT_CUDA_TRY(CountResident(driver, function, symbol, &resident));
    if (limits != nullptr) (*limits)[i] = resident;
  }
  return onebitSuccess;
}

}  // namespace onebit::device_cuda
