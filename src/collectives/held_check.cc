// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/held_check.h"

#include <cstring>

#include "base/guard.h"
#include "collectives/step_compute.h"

namespace onebit {

Status CheckHeld(Comm* comm, const Call& call, const kernels::Checksum* held) {
  const Plan& plan = *call.plan;
  if (!plan.key.has_drift_check) return OkStatus();
  for (uint32_t peer = 0; peer < plan.ranks; ++peer) {
    if (peer == plan.rank) continue;
    kernels::Checksum there;
    const Step& step = plan.steps[plan.ReceiveStep(2, peer, 0)];
    std::memcpy(&there, call.Read(step.region), sizeof(there));
    const kernels::Checksum here = held == nullptr ? HeldChecksum(call, peer) : held[peer];
    if (here == there) continue;
    return comm->Fail(CatchNoMemory([&]() -> Status {
      return Error(Code::kMismatch,
                   "rank {}: {}: this rank and rank {} hold different values of what rank "
                   "{} gathers (checksums {:08x}:{:08x} here, {:08x}:{:08x} there): memory "
                   "was damaged, or processors do not compute alike; what all ranks hold "
                   "must be reset, by a new communicator and new compressors on all",
                   plan.rank, Describe(call.descriptor), peer, peer, here.sum, here.weighted,
                   there.sum, there.weighted);
    }));
  }
  return OkStatus();
}

}  // namespace onebit
