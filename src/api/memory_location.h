// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds the location of a call's buffers, and checks that its stream matches it.
#pragma once

#include "base/status.h"
#include "device/devices.h"
#include "onebit/onebit.h"

namespace onebit {

// Returns the devices of this process; null until the program has loaded CUDA.
const Devices* FindDevices();
// The same; the error says why there are none.
Result<const Devices*> GetDevices();

// Returns the location of a call's buffers, of which either may be null. Without buffers a CUDA
// stream means the current device.
Result<MemoryLocation> LocationOfCall(onebitStream_t stream, const void* sendbuff,
                                      const void* recvbuff);

// Fails for device memory; `what` names the function that needs host memory.
Status CheckHostMemory(const void* buffer, const char* what);

// Returns where a new compressor keeps its residuals. `memory` is an onebitMemory_t or undefined,
// `device` an ordinal or undefined.
Result<MemoryLocation> LocationOfResiduals(int32_t memory, int32_t device);

}  // namespace onebit
