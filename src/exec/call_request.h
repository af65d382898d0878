// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arguments of a collective call, and facts that follow from them alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "codec/message_header.h"
#include "comm/comm.h"
#include "device/memory.h"
#include "plan/algorithms.h"
#include "plan/plan.h"
#include "plan/planned_compressor.h"
#include "steps/batch.h"

namespace onebit {

// The counts and displacements of an all-to-all-v: the caller's lists, or copies of them for a call
// that outlives their function. A copy of this object refers to the lists of the original.
class PairLists {
 public:
  PairLists() = default;
  PairLists(const PairCounts& callers) : counts_(callers) {}  // NOLINT: in place of the lists
  PairLists(const PairLists& other) : counts_(other.counts_) {}
  PairLists(PairLists&&) noexcept = default;
  PairLists& operator=(const PairLists& other) {
    counts_ = other.counts_;
    return *this;
  }
  PairLists& operator=(PairLists&&) noexcept = default;

  const PairCounts& operator*() const { return counts_; }
  const PairCounts* operator->() const { return &counts_; }

  // Copies the lists, of `ranks` numbers each, unless there are none. Reuses memory.
  void Own(size_t ranks);

 private:
  PairCounts counts_;
  std::vector<size_t> numbers_;  // copies of the four lists in succession
};

struct CallRequest {
  Collective collective = Collective::kBarrier;
  const void* sendbuff = nullptr;
  void* recvbuff = nullptr;
  // Elements; of one part if a buffer has a part for every rank. 0 in an all-to-all-v, whose
  // buffers begin at the origin of `pairs`.
  size_t count = 0;
  kernels::DataType type = kernels::DataType::kF32;
  ReduceOp op = {};                         // if the collective has one
  uint32_t root = 0;                        // for a broadcast; the peer of a send or receive
  bool is_receive = false;                  // of a pair of ranks
  MemoryLocation location = {};             // of both buffers
  onebitStream_t stream = nullptr;          // null: the call blocks, or CUDA's default stream
  PlannedCompressor* compressor = nullptr;  // null: dense
  PairLists pairs = {};                     // for an all-to-all-v
  // Bit pattern of the weight sum of a sync, which the ranks compare.
  std::optional<uint32_t> sync_weight = std::nullopt;
  bool can_be_native = true;    // if dense, may be the transport's own
  bool can_have_levels = true;  // if dense; otherwise its result must not depend on hosts
  // Elements of the call that this is a piece of, which decide about its levels; 0: it is whole.
  size_t whole_count = 0;
};
// A list of requests that grows moves them, since their copies would not own the pair lists.
static_assert(std::is_nothrow_move_constructible_v<CallRequest>);

// The properties of the call that its plan depends on.
PlanKey KeyOf(const CallRequest& request, const Comm& comm);

// The properties of the call that ranks compare, except its sequence number.
CallDescriptor DescriptorOf(const CallRequest& request, const Comm& comm);
CallDescriptor DescriptorOf(const PlanKey& key, const Comm& comm);

// The call in the form that executors run. `packets` has plan.packet_space_bytes.
Call CallOf(const CallRequest& request, const Plan& plan, const Comm& comm, std::byte* packets);

// The calls that run together by `plan`, that of a single call or of a group, in the form that
// executors run. Numbers the calls, unless they are pairs; `digests` lends its memory. The caller
// sets `packets`.
Batch BatchOf(const Plan& plan, std::span<Call> calls, uint64_t sequence,
              std::vector<uint32_t>* digests, const Comm& comm);

// Bytes of the caller's buffers that the call reads and writes on this rank.
struct BufferBytes {
  size_t input = 0;
  size_t output = 0;
};
BufferBytes BytesOf(const CallRequest& request, const Comm& comm);

}  // namespace onebit
