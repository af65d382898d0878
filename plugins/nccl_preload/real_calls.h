// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes calls that move data by the real NCCL.
#pragma once

#include "plugins/nccl_preload/nccl_types.h"
#include "plugins/nccl_preload/preload_comm.h"

namespace onebit::preload {

// Makes the call by NCCL's function of the same form: with a configuration, if it has one.
Result MakeRealCall(const DataCall& call, Comm native);

}  // namespace onebit::preload
