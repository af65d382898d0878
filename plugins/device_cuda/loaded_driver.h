// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA driver that the program has loaded, once it is known to be usable.
#pragma once

#include <string>

#include "plugins/common/cuda_driver.h"

namespace onebit::device_cuda {

using cuda::CurrentContext;
using cuda::Driver;
using cuda::RelaxedCapture;

// CUDA 12.1, the first whose kernels take parameters of more than 4 KiB. They also need a driver of
// the major version of the toolkit that compiled them, which is checked when they are loaded.
inline constexpr int kMinDriverVersion = 12010;

// Fills in `driver` and initialises it. Never loads a library. Returns "" or why no driver is
// usable.
std::string StartDriver(Driver* driver);

}  // namespace onebit::device_cuda
