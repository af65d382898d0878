// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements the members of DeviceFunctions for device memory and pinned memory.
#pragma once

#include "device/device_abi.h"
#include "plugins/device_cuda/process.h"

namespace onebit::device_cuda {

onebitResult_t InspectPointer(Process& process, const void* pointer, DevicePointerInfo* info);
onebitResult_t Allocate(Process& process, size_t bytes, void** memory);
void Free(Process& process, void* memory);
onebitResult_t AllocatePinned(Process& process, size_t bytes, void** memory);
void FreePinned(Process& process, void* memory);
onebitResult_t Copy(Process& process, void* to, const void* from, size_t bytes,
                    onebitStream_t stream);
onebitResult_t Fill(Process& process, void* memory, uint8_t value, size_t bytes,
                    onebitStream_t stream);

}  // namespace onebit::device_cuda
