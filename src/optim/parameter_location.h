// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the buffers of an optimizer lie.
#pragma once

#include "base/status.h"
#include "device/devices.h"
#include "onebit/onebit.h"

namespace onebit::optim {

// The devices of this process; null as long as the program has not loaded CUDA.
const Devices* FindDevices();

// Of memory that may be null, which is the host's.
Result<MemoryLocation> LocationOf(const void* memory);

// An error that names both unless `memory`, if it is not null, is in the same place as the
// parameters.
Status CheckLocation(const char* name, const void* memory, const MemoryLocation& parameters);

// An error if `config`, if it is not null, wants the residuals to be elsewhere.
Status CheckResidualLocation(const onebitCompressorConfig_t* config,
                             const MemoryLocation& parameters);

}  // namespace onebit::optim
