// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Waiting for calls on a CUDA stream.
#pragma once

#include "onebit/onebit.h"
#include "perf/common/cuda_device.h"

namespace onebit::perf {

// Waits until the calls of `comm` on the stream are done, or one has failed. Throws ToolError.
void AwaitCalls(onebitComm_t comm, const CudaStream& stream);

}  // namespace onebit::perf
