// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, each with a CUDA device; they share devices if there are fewer.
#pragma once

#include <functional>

#include "onebit/onebit.h"

namespace onebit::testing {

// The transport: over host memory (local, or socket if there are several hosts), or by NCCL, which
// needs a device per rank.
enum class Over { kLocal, kNccl };
inline const char* NameOf(Over over) { return over == Over::kLocal ? "local" : "nccl"; }

// Calls `body(comm, rank)` on each rank, with its device current. A rank that throws fails the
// group; the first exception is thrown again here. `host_ranks` successive ranks form a host;
// 0: all of them.
void RunDeviceRanks(Over over, int ranks,
                    const std::function<void(onebitComm_t comm, int rank)>& body,
                    int host_ranks = 0);

}  // namespace onebit::testing
