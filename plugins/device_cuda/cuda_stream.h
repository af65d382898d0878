// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements the members of DeviceFunctions for streams and events.
#pragma once

#include "device/device_abi.h"
#include "plugins/device_cuda/process.h"

namespace onebit::device_cuda {

onebitResult_t CreateStream(Process& process, onebitStream_t* stream);
void DestroyStream(Process& process, onebitStream_t stream);
onebitResult_t CreateEvent(Process& process, void** event);
void DestroyEvent(Process& process, void* event);
onebitResult_t RecordEvent(Process& process, void* event, onebitStream_t stream);
onebitResult_t WaitEvent(Process& process, onebitStream_t stream, void* event);
onebitResult_t QueryEvent(Process& process, void* event, int* is_done);
onebitResult_t Synchronize(Process& process, onebitStream_t stream, uint64_t timeout_ms);
onebitResult_t WaitValue(Process& process, onebitStream_t stream, const uint32_t* word,
                         uint32_t value);
onebitResult_t WriteValue(Process& process, onebitStream_t stream, uint32_t* word, uint32_t value);
onebitResult_t IsCapturing(Process& process, onebitStream_t stream, int* is_capturing);

}  // namespace onebit::device_cuda
