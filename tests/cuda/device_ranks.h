// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, each with a CUDA device, in turns if there are fewer.
#pragma once

#include <functional>

#include "onebit/onebit.h"

namespace onebit::testing {

// How they reach each other: by the host, or by NCCL, which wants a device for each.
enum class Over { kLocal, kNccl };
inline const char* NameOf(Over over) { return over == Over::kLocal ? "local" : "nccl"; }

// Calls `body(comm, rank)` on each rank, whose device is the current one of its thread. A rank that
// throws takes the group down; the first exception is thrown again here.
void RunDeviceRanks(Over over, int ranks,
                    const std::function<void(onebitComm_t comm, int rank)>& body);

}  // namespace onebit::testing
