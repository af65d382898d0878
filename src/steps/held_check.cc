// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/held_check.h"

#include <cstring>

#include "base/guard.h"
#include "steps/step_compute.h"

namespace onebit {

namespace {

kernels::Checksum ChecksumAt(const Call& call, const Step& step) {
  kernels::Checksum checksum;
  std::memcpy(&checksum, call.Read(step.region), sizeof(checksum));
  return checksum;
}

// The receiver compares what both have put into their second messages. It sends none.
Status CheckPair(Comm* comm, const Call& call) {
  const Plan& plan = *call.plan;
  if (!plan.key.is_receive) return OkStatus();
  kernels::Checksum here, there;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kVerdict) here = ChecksumAt(call, step);
    if (step.kind == StepKind::kReceive && step.exchange == 2) there = ChecksumAt(call, step);
  }
  if (here == there) return OkStatus();
  return comm->Fail(CatchNoMemory([&]() -> Status {
    return Error(Code::kMismatch,
                 "rank {}: {}: this rank and rank {} hold different values of what rank {} sends "
                 "(checksums {:08x}:{:08x} here, {:08x}:{:08x} there): memory was damaged, or "
                 "processors do not compute alike; to reset what both hold, make a new "
                 "communicator and new compressors on both",
                 plan.rank, Describe(call.descriptor), plan.key.root, plan.key.root, here.sum,
                 here.weighted, there.sum, there.weighted);
  }));
}

}  // namespace

Status CheckHeld(Comm* comm, const Call& call, const kernels::Checksum* held) {
  const Plan& plan = *call.plan;
  if (!plan.key.has_drift_check || plan.is_alone()) return OkStatus();
  if (plan.key.is_pairs()) return CheckPair(comm, call);
  for (uint32_t peer = 0; peer < plan.ranks; ++peer) {
    if (peer == plan.rank) continue;
    const kernels::Checksum there =
        ChecksumAt(call, plan.steps[plan.ReceiveStep(plan.key.verdict_exchange(), peer, 0)]);
    const kernels::Checksum here = held == nullptr ? HeldChecksum(call, peer) : held[peer];
    if (here == there) continue;
    return comm->Fail(CatchNoMemory([&]() -> Status {
      return Error(Code::kMismatch,
                   "rank {}: {}: this rank and rank {} hold different values of what rank {} "
                   "gathers (checksums {:08x}:{:08x} here, {:08x}:{:08x} there): memory was "
                   "damaged, or processors do not compute alike; to reset what all ranks hold, "
                   "make a new communicator and new compressors on all",
                   plan.rank, Describe(call.descriptor), peer, peer, here.sum, here.weighted,
                   there.sum, there.weighted);
    }));
  }
  return OkStatus();
}

}  // namespace onebit
