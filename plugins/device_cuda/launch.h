// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Launches kernels: DeviceFunctions::Launch.
#pragma once

#include <cstdint>

#include "onebit/onebit.h"

namespace onebit::device_cuda {

onebitResult_t Launch(uint32_t kernel, const void* params, onebitStream_t stream);

}  // namespace onebit::device_cuda
