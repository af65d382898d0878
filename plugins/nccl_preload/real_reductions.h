// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes reductions as NCCL does.
#pragma once

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/preload_comm.h"

namespace onebit::preload {

// The allreduce or reduce-scatter, by the real NCCL.
Result MakeRealReduction(const Reduction& call, Comm native);

}  // namespace onebit::preload
