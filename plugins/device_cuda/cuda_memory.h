// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements the members of DeviceFunctions for device memory and pinned memory.
#pragma once

#include "device/device_abi.h"

namespace onebit::device_cuda {

onebitResult_t InspectPointer(const void* pointer, DevicePointerInfo* info);
onebitResult_t Allocate(size_t bytes, void** memory);
void Free(void* memory);
onebitResult_t AllocatePinned(size_t bytes, void** memory);
void FreePinned(void* memory);
onebitResult_t Copy(void* to, const void* from, size_t bytes, onebitStream_t stream);
onebitResult_t Fill(void* memory, uint8_t value, size_t bytes, onebitStream_t stream);

}  // namespace onebit::device_cuda
