// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Functions of the CUDA driver that the program has loaded. Without one they do nothing.
#pragma once

#include <cstddef>

#include "plugins/nccl_preload/nccl_types.h"

namespace onebit::preload {

// True if calls on the stream become nodes of a graph.
bool IsCaptured(Stream stream);

// Host memory that devices can reach, zeroed; null if there is none. Needs a current context, as
// the thread that makes a communicator has.
void* AllocatePinned(size_t bytes);
void FreePinned(void* memory);

}  // namespace onebit::preload
