// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/call_request.h"

#include <algorithm>

#include "plan/algorithms.h"
#include "plan/reduce_op.h"

namespace onebit {
namespace {

// An all-gather with error feedback compares estimates every so many calls.
constexpr uint8_t kDriftCheckInterval = 16;

bool IsDriftCheckTime(const PlannedCompressor& compressor) {
  if (compressor.check_plan == nullptr) return false;
  // Calls on streams may not be committed yet, so what counts is calls, whatever came of them. The
  // remainder is that of replica ages.
  const uint8_t number = Compressor::AgeOf(compressor.compressor.calls());
  return number != 0 && number % kDriftCheckInterval == 0 &&
         compressor.check_plan->key.has_drift_check;
}

// Every rank does the server's rounding with one exchange, so its draws must be equal on all ranks:
// those of the same seed and of as many calls before. So must be draws that select elements.
void AddDraws(const PlanKey& key, const Compressor& state, CallDescriptor* descriptor) {
  const uint64_t seed = state.config().seed;
  const auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  constexpr uint32_t kOdd = 0x9e37'79b1u;  // so that no two halves cancel as they are
  descriptor->mask_digest ^= key.codec.is_sparse() ? low ^ high : low + kOdd * high;
  if (HasSharedDraws(key)) descriptor->replica_age = Compressor::AgeOf(state.epoch());
}

// True if the transport makes the dense call itself.
bool IsNative(const CallRequest& request, const Comm& comm) {
  if (!comm.has_native_dense() || comm.ranks() == 1) return false;
  switch (request.collective) {
    case Collective::kAllReduce:
      return comm.is_stream_ordered() || (request.type == kernels::DataType::kF32 &&
                                          !IsOfWords(request.type, DenseOpOf(request.op)));
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return comm.is_stream_ordered();
    case Collective::kAllToAll:
    case Collective::kAllToAllv:
    case Collective::kBarrier:
    case Collective::kGroup:
    case Collective::kSendRecv:
      break;
  }
  return false;
}

bool IsWithItself(const CallRequest& request, const Comm& comm) {
  return request.root == static_cast<uint32_t>(comm.rank());
}

// Number of elements that a buffer of an all-to-all-v spans.
size_t Extent(const size_t* counts, const size_t* begins, size_t ranks) {
  size_t extent = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (counts[rank] != 0) extent = std::max(extent, begins[rank] + counts[rank]);
  }
  return extent;
}

}  // namespace

void PairLists::Own(size_t ranks) {
  if (counts_.send_counts == nullptr || counts_.send_counts == numbers_.data()) return;
  numbers_.clear();
  numbers_.reserve(4 * ranks);
  for (const size_t* list :
       {counts_.send_counts, counts_.send_begins, counts_.receive_counts, counts_.receive_begins}) {
    numbers_.insert(numbers_.end(), list, list + ranks);
  }
  const size_t* const lists = numbers_.data();
  counts_ = {lists, lists + ranks, lists + 2 * ranks, lists + 3 * ranks};
}

PlanKey KeyOf(const CallRequest& request, const Comm& comm) {
  PlanKey key;
  if (request.compressor != nullptr) {
    key = request.compressor->plan->key;
    key.root = request.root;
    key.is_receive = request.is_receive;
    key.has_drift_check = IsDriftCheckTime(*request.compressor);
    return key;
  }
  key.collective = request.collective;
  key.type = request.type;
  key.root = request.root;
  key.is_receive = request.is_receive;
  key.count = request.count;
  key.is_native = request.can_be_native && IsNative(request, comm);
  PlanKey whole = key;
  if (request.whole_count != 0) whole.count = request.whole_count;
  key.has_two_levels = CanHaveLevels(request.collective) && !key.is_native &&
                       request.can_have_levels &&
                       UsesTwoLevels(BufferBytesOf(whole, static_cast<size_t>(comm.ranks())),
                                     comm.hosts(), comm.options());
  switch (request.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kAllToAllv:
    case Collective::kSendRecv:
      key.chunk_alignment = 0;
      break;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kBarrier:
    case Collective::kGroup:
      break;
  }
  return key;
}

CallDescriptor DescriptorOf(const PlanKey& key, const Comm& comm) {
  return {
      .comm_id = comm.id(),
      .collective = key.collective,
      .count = key.count,
      .type = key.type,
      .codec = key.codec,
      .chunk_alignment = key.chunk_alignment,
      .is_one_exchange = key.is_one_exchange,
      .has_two_levels = key.has_two_levels,
  };
}

CallDescriptor DescriptorOf(const CallRequest& request, const Comm& comm) {
  const PlanKey key = KeyOf(request, comm);
  CallDescriptor descriptor = DescriptorOf(key, comm);
  descriptor.op = request.op;
  if (request.collective == Collective::kBroadcast) descriptor.tensor_id = request.root;
  if (request.compressor == nullptr) return descriptor;
  const Compressor& state = request.compressor->compressor;
  descriptor.tensor_id = state.config().tensor_id;
  descriptor.has_server_residual =
      state.config().has_server_residual && key.collective == Collective::kAllReduce;
  descriptor.mask_digest = state.mask_digest();
  descriptor.is_weighted = key.is_weighted;
  if (key.cuts != nullptr) {
    descriptor.has_cuts = true;
    descriptor.mask_digest ^= key.cuts->digest();
  }
  if (key.codec.rounds_at_random() || key.codec.sparse.is_random) {
    AddDraws(key, state, &descriptor);
  }
  if (HasReplica(key, state)) {
    descriptor.is_replica_bf16 = state.config().residual_type == kernels::DataType::kBf16;
    descriptor.is_replica_transactional = state.config().is_transactional;
    descriptor.replica_age = state.age();
  }
  if (request.sync_weight.has_value()) {
    descriptor.is_sync = true;
    descriptor.mask_digest ^= *request.sync_weight;
  }
  return descriptor;
}

Call CallOf(const CallRequest& request, const Plan& plan, const Comm& comm, std::byte* packets) {
  return {
      .plan = &plan,
      .descriptor = DescriptorOf(request, comm),
      .input = static_cast<const std::byte*>(request.sendbuff),
      .output = static_cast<std::byte*>(request.recvbuff),
      .packets = packets,
      .compressor = request.compressor == nullptr ? nullptr : &request.compressor->compressor,
  };
}

Batch BatchOf(const Plan& plan, std::span<Call> calls, uint64_t sequence,
              std::vector<uint32_t>* digests, const Comm& comm) {
  if (plan.key.is_pairs()) {
    return {.plan = &plan, .descriptor = calls[0].descriptor, .calls = calls, .digests = {}};
  }
  digests->resize(std::max(digests->size(), calls.size()));
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].descriptor.sequence = sequence;
    (*digests)[i] = DigestOf(calls[i].descriptor, static_cast<uint16_t>(calls[i].plan->segments()));
  }
  Batch batch = {.plan = &plan, .descriptor = calls[0].descriptor, .calls = calls, .digests = {}};
  if (plan.key.collective != Collective::kGroup) return batch;
  batch.digests = std::span(*digests).first(calls.size());
  batch.descriptor = DescriptorOf(plan.key, comm);
  batch.descriptor.sequence = sequence;
  batch.descriptor.mask_digest = GroupDigest(batch.digests);
  return batch;
}

BufferBytes BytesOf(const CallRequest& request, const Comm& comm) {
  const size_t element_bytes = kernels::BytesOf(request.type);
  const auto ranks = static_cast<size_t>(comm.ranks());
  const size_t part = request.count * element_bytes;
  const PairCounts& pairs = *request.pairs;
  switch (request.collective) {
    case Collective::kBarrier:
    case Collective::kGroup:
      return {};
    case Collective::kBroadcast:
      return {.input = request.root == static_cast<uint32_t>(comm.rank()) ? part : 0,
              .output = part};
    case Collective::kSendRecv:
      // The input of a rank's call with itself is that of its receive.
      return {.input = request.is_receive == IsWithItself(request, comm) ? part : 0,
              .output = request.is_receive ? part : 0};
    case Collective::kAllReduce:
      return {part, part};
    case Collective::kReduceScatter:
      return {part * ranks, part};
    case Collective::kAllGather:
      return {part, part * ranks};
    case Collective::kAllToAll:
      return {part * ranks, part * ranks};
    case Collective::kAllToAllv:
      return {Extent(pairs.send_counts, pairs.send_begins, ranks) * element_bytes,
              Extent(pairs.receive_counts, pairs.receive_begins, ranks) * element_bytes};
  }
  return {};
}

}  // namespace onebit
