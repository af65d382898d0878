// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the buffers of a call lie, and whether its stream fits.
#pragma once

#include "base/status.h"
#include "device/devices.h"
#include "onebit/onebit.h"

namespace onebit {

// The devices of this process; null as long as the program has not loaded CUDA.
const Devices* FindDevices();
// The same, or why there are none.
Result<const Devices*> GetDevices();

// Of a call with these buffers, of which either may be null. With a CUDA stream and no buffers it
// is the current device.
Result<MemoryLocation> LocationOfCall(onebitStream_t stream, const void* sendbuff,
                                      const void* recvbuff);

// Refuses memory of a device for what works on host memory only; `what` is its subject.
Status CheckHostMemory(const void* buffer, const char* what);

// Where the residuals of a new compressor go: `memory` is an onebitMemory_t or undefined, `device`
// an ordinal or undefined.
Result<MemoryLocation> LocationOfResiduals(int32_t memory, int32_t device);

}  // namespace onebit
