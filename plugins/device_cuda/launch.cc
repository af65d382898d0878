// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/launch.h"

#include <algorithm>

#include "kernels/cuda/kernel_table.h"
#include "plugins/device_cuda/cuda_context.h"
#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {

using kernels::cuda::Kernel;
using kernels::cuda::kWarpsPerCta;

onebitResult_t Launch(Process& process, uint32_t kernel, const void* params,
                      onebitStream_t stream) {
  if (kernel >= kKernelCount || params == nullptr) {
    return Fail(onebitInvalidArgument, "there is no kernel {}, or it got no parameters", kernel);
  }
  Device* device = nullptr;
  ONEBIT_CUDA_TRY(FindCurrentDevice(process, &device));

  const uint64_t warps = kernels::cuda::WarpsFor(static_cast<Kernel>(kernel), params);
  kernel = static_cast<uint32_t>(kernels::cuda::ShortestFor(static_cast<Kernel>(kernel), params));
  if (warps == 0) return onebitSuccess;
  // A CTA for each warp with work, until the device is full: they then lie on different
  // multiprocessors.
  const uint64_t ctas = std::min<uint64_t>(warps, device->limits[kernel]);

  // Every kernel has one parameter, a structure; CUDA copies it before the launch returns.
  void* arguments[] = {const_cast<void*>(params)};
  const Driver& driver = process.driver();
  return Check(
      driver,
      driver.cuLaunchKernel(process.kernels().function(kernel), static_cast<unsigned>(ctas), 1, 1,
                            32 * kWarpsPerCta, 1, 1, 0, stream, arguments, nullptr),
      "launching {}", kernels::cuda::kKernels[kernel].symbol);
}

}  // namespace onebit::device_cuda
