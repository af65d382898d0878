// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The algorithms: each writes the plan of one collective for one rank.
#pragma once

#include "collectives/plan.h"
#include "comm/comm.h"

namespace onebit {

// Scatter, reduce, all-gather: two exchanges; dense, or compressed in both. allreduce_sra.cc
Plan PlanAllReduceSra(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// A dense segment has 32 times the bytes of a compressed one: it is cut in four, so that the
// exchanges of a tensor of a few MiB overlap too.
constexpr size_t DenseSegmentElements(size_t segment_elements) {
  return segment_elements / 4 + (segment_elements % 4 != 0);  // 0: a chunk is one segment
}

// One exchange: every rank gets all packets and does the server's work of every chunk itself, with
// a replicated server residual, so that its bytes equal those of PlanAllReduceSra. Compressed only.
// allreduce_one_exchange.cc
Plan PlanAllReduceOneExchange(const PlanKey& key, uint32_t rank, uint32_t ranks);

// Headers from everyone to everyone, then the transport's own allreduce. Dense fp32 only.
// allreduce_native.cc
Plan PlanAllReduceNative(const PlanKey& key, uint32_t rank, uint32_t ranks);

// Scatter and reduce; compressed without compressing again. reduce_scatter.cc
Plan PlanReduceScatter(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// Everybody's chunk to everybody; with error feedback as the difference from what all hold of it.
// all_gather.cc
Plan PlanAllGather(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// A chunk for every rank to it. all_to_all.cc
Plan PlanAllToAll(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// The same with other counts for every pair, which a plan takes on before each call. Their sizes
// alone change, so this allocates nothing. all_to_all_v.cc
Plan PlanAllToAllv(const PlanKey& key, uint32_t rank, uint32_t ranks);
// By peer, in elements: how many, and where in the buffer they begin.
struct PairCounts {
  const size_t* send_counts = nullptr;
  const size_t* send_begins = nullptr;
  const size_t* receive_counts = nullptr;
  const size_t* receive_begins = nullptr;
};
void ResizeAllToAllv(const PairCounts& pairs, Plan* plan);
size_t TensorElementsOf(const PairCounts& pairs, size_t ranks);
// Packet space of the plan with these counts, whatever counts it has now.
size_t PacketBytesOfPairs(const Plan& plan, const PairCounts& pairs);

// The root's buffer to all; every other pair exchanges a header, so that ranks whose calls differ
// find out. broadcast.cc
Plan PlanBroadcast(const PlanKey& key, uint32_t rank, uint32_t ranks);

// A header from everyone to everyone. broadcast.cc
Plan PlanBarrier(const PlanKey& key, uint32_t rank, uint32_t ranks);

// A copy from input to output: what every collective is for one rank. broadcast.cc
Plan PlanCopy(const PlanKey& key);

// Whether the calls of a compressed tensor take one exchange. select.cc
bool UsesOneExchange(size_t count, uint32_t ranks, const CommOptions& options);

// The selection table: which of the above serves a key. select.cc
Plan SelectPlan(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// Chunks of a compressed allreduce of this key; the same for both of its algorithms.
inline Partition ChunksOf(const PlanKey& key, uint32_t ranks) {
  return {key.count, ranks, key.chunk_alignment, key.block, 0};
}

// A packet with all chunks of a tensor: the scales of chunk 0, 1, ..., then all bits.
PacketShape WholeShape(const Partition& chunks, uint32_t ranks, uint32_t block);

}  // namespace onebit
