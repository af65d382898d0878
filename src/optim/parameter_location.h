// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The memory location of an optimizer's buffers.
#pragma once

#include "base/status.h"
#include "device/devices.h"
#include "onebit/onebit.h"

namespace onebit::optim {

// The devices of this process; null while the program has not loaded CUDA.
const Devices* FindDevices();

// The location of `memory`; the host if it is null.
Result<MemoryLocation> LocationOf(const void* memory);

// Returns an error that names both buffers unless `memory` is null or at the parameters' location.
Status CheckLocation(const char* name, const void* memory, const MemoryLocation& parameters);

// Returns an error if `config` is not null and wants the residuals elsewhere.
Status CheckResidualLocation(const onebitCompressorConfig_t* config,
                             const MemoryLocation& parameters);

}  // namespace onebit::optim
