// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MakeRealReduction forwards a reduction to the real NCCL.
#pragma once

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/preload_comm.h"

namespace onebit::preload {

Result MakeRealReduction(const Reduction& call, Comm native);

}  // namespace onebit::preload
