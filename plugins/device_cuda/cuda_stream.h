// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Implements the members of DeviceFunctions for streams and events.
#pragma once

#include "device/device_abi.h"

namespace onebit::device_cuda {

onebitResult_t CreateStream(onebitStream_t* stream);
void DestroyStream(onebitStream_t stream);
onebitResult_t CreateEvent(void** event);
void DestroyEvent(void* event);
onebitResult_t RecordEvent(void* event, onebitStream_t stream);
onebitResult_t WaitEvent(onebitStream_t stream, void* event);
onebitResult_t QueryEvent(void* event, int* is_done);
onebitResult_t Synchronize(onebitStream_t stream, uint64_t timeout_ms);
onebitResult_t WaitValue(onebitStream_t stream, const uint32_t* word, uint32_t value);
onebitResult_t IsCapturing(onebitStream_t stream, int* is_capturing);

}  // namespace onebit::device_cuda
