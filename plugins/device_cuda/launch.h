// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches kernels: DeviceFunctions::Launch.
#pragma once

#include <cstdint>

#include "onebit/onebit.h"
#include "plugins/device_cuda/process.h"

namespace onebit::device_cuda {

onebitResult_t Launch(Process& process, uint32_t kernel, const void* params, onebitStream_t stream);

}  // namespace onebit::device_cuda
