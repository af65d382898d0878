// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives of an engine whose tensor is one chunk per rank.
#include <cstring>
#include <new>

#include "collectives/device_steps.h"
#include "collectives/engine.h"

namespace onebit {
namespace {

// Calls of an all-gather after which ranks compare what they hold of each other: by the one count
// of calls that all of them are known to agree on.
constexpr uint8_t kDriftCheckInterval = 16;

bool IsCheckTime(const Compressor& state) {
  return state.age() != 0 && state.age() % kDriftCheckInterval == 0;
}

}  // namespace

Engine::Request Engine::ChunksRequest(Collective collective, const Buffers& buffers, ReduceOp op,
                                      PlannedCompressor* compressor) const {
  if (compressor != nullptr) {
    Request request = CompressedRequest(buffers, op, compressor);
    request.key.has_drift_check = compressor->check_plan != nullptr &&
                                  IsCheckTime(compressor->compressor) &&
                                  compressor->check_plan->key.has_drift_check;
    return request;
  }
  const PlanKey key = {
      .collective = collective, .type = buffers.type, .chunk_alignment = 0, .count = buffers.count};
  CallDescriptor descriptor = DescriptorOf(key);
  descriptor.op = op;
  return {key, descriptor, buffers, nullptr, {}};
}

Engine::Request Engine::AllToAllvRequest(const Buffers& buffers, const PairCounts& pairs,
                                         PlannedCompressor* compressor) const {
  if (compressor != nullptr) {
    Request request = CompressedRequest(buffers, {}, compressor);
    request.pairs = pairs;
    return request;
  }
  const PlanKey key = {
      .collective = Collective::kAllToAllv, .type = buffers.type, .chunk_alignment = 0};
  return {key, DescriptorOf(key), buffers, nullptr, pairs};
}

// A plan with the counts of this call, until the next one.
std::shared_ptr<const Plan> Engine::PairPlanFor(const Request& request) {
  std::shared_ptr<Plan> plan;
  if (request.compressor != nullptr) {
    plan = request.compressor->sized_plan;
  } else {
    if (dense_pairs_ == nullptr) {
      dense_pairs_ = std::make_shared<Plan>(
          SelectPlan({.collective = Collective::kAllToAllv, .chunk_alignment = 0},
                     static_cast<uint32_t>(comm_.rank()), static_cast<uint32_t>(comm_.ranks()), 0));
      executor_.Reserve(*dense_pairs_);
    }
    plan = dense_pairs_;
    plan->key.type = request.buffers.type;
  }
  ResizeAllToAllv(request.pairs, plan.get());
  return plan;
}

Result<kernels::Checksum> Engine::HeldBy(const onebit::Call& call, uint32_t chunk) {
  return call.is_on_device() ? device_steps()->HeldChecksum(call, chunk)
                             : HeldChecksum(call, chunk);
}

// Every rank's verdict carries the checksum of what it holds of itself; this rank holds the same,
// or its outputs are wrong from some call on.
Status Engine::CheckHeld(const onebit::Call& call) {
  const Plan& plan = *call.plan;
  if (!plan.key.has_drift_check) return OkStatus();
  for (uint32_t peer = 0; peer < plan.ranks; ++peer) {
    if (peer == plan.rank) continue;
    kernels::Checksum there;
    const Step& step = plan.steps[plan.ReceiveStep(2, peer, 0)];
    std::memcpy(&there, call.Read(step.region), sizeof(there));
    ONEBIT_ASSIGN_OR_RETURN(const kernels::Checksum here, HeldBy(call, peer));
    if (here == there) continue;
    try {
      return comm_.Fail(
          Error(Code::kMismatch,
                "rank {}: {}: this rank and rank {} hold different values of what rank "
                "{} gathers (checksums {:08x}:{:08x} here, {:08x}:{:08x} there): memory "
                "was damaged, or processors do not compute alike; what all ranks hold "
                "must be reset, by a new communicator and new compressors on all",
                plan.rank, Describe(call.descriptor), peer, peer, here.sum, here.weighted,
                there.sum, there.weighted));
    } catch (const std::bad_alloc&) {
      return comm_.FailWithoutMemory();
    }
  }
  return OkStatus();
}

}  // namespace onebit
