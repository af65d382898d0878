// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/rank_link.h"

#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"

namespace onebit::perf {

int CommLink::rank() const { return RankOf(comm_); }
int CommLink::ranks() const { return CountOf(comm_); }

void CommLink::Barrier() { Check(onebitBarrier(comm_, nullptr), "onebitBarrier"); }

void CommLink::Broadcast(std::span<std::byte> bytes, int root) {
  BroadcastBytes(comm_, bytes, root);
}

void CommLink::Finish() { Check(onebitCommFinalize(comm_), "onebitCommFinalize"); }

}  // namespace onebit::perf
