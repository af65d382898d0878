// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The current device of a thread: what DeviceFunctions says of CurrentDevice, Enter and Leave.
#pragma once

#include <cstdint>

#include "onebit/onebit.h"
#include "plugins/device_cuda/process.h"

namespace onebit::device_cuda {

onebitResult_t CurrentDevice(int* device);
onebitResult_t Enter(int device, uintptr_t* token);
void Leave(uintptr_t token);

// A primary context of a device that is in use, whichever; null: none is. Keeps it.
onebitResult_t FindUsedContext(Process& process, CUcontext* context);

// The device whose context is current, once it was entered. No allocation, no lock.
onebitResult_t FindCurrentDevice(Process& process, Device** device);

}  // namespace onebit::device_cuda
