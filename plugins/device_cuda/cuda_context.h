// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The current device of a thread: implements CurrentDevice, Enter and Leave of DeviceFunctions.
#pragma once

#include <cstdint>

#include "onebit/onebit.h"
#include "plugins/device_cuda/process.h"

namespace onebit::device_cuda {

onebitResult_t CurrentDevice(Process& process, int* device);
onebitResult_t Enter(Process& process, int device, uintptr_t* token);
void Leave(Process& process, uintptr_t token);

// Finds a primary context in use, of any device, and retains it; null if there is none.
onebitResult_t FindUsedContext(Process& process, CUcontext* context);

// Finds the device whose context is current, once it was entered. No allocation, no lock.
onebitResult_t FindCurrentDevice(Process& process, Device** device);

}  // namespace onebit::device_cuda
