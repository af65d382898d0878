// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Processes introduce themselves when they join a communicator, and each derives what all know.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "comm/comm.h"
#include "comm/unique_id.h"
#include "topology/host_map.h"

namespace onebit {

// Facts a rank derives from all introductions.
struct GroupFacts {
  HostMap hosts;
  size_t sharing_ranks = 1;      // on this rank's processors, itself included
  bool is_one_host = true;       // all ranks can share memory over the transport
  std::vector<UniqueId> spares;  // by rank
};

// Introduces this rank to the others, and fails alike on all ranks if they differ in what must be
// equal. `spare` is where this rank would meet them after a failure.
Result<GroupFacts> Introduce(const JoinOptions& options, const Transport& transport,
                             const UniqueId& spare, ControlClient* control);

}  // namespace onebit
