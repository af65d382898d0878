// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The algorithms. Each builds the plan of one collective for one rank.
#pragma once

#include "comm/comm.h"
#include "plan/plan.h"

namespace onebit {

// Scatter, reduce, all-gather: two exchanges; dense, or compressed in both. allreduce_sra.cc
Plan PlanAllReduceSra(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// The same in two levels: inside hosts, and between them on rails. Some, but not all ranks have to
// share a host, and each segment has scales of its own. allreduce_two_levels.cc
Plan PlanAllReduceTwoLevels(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                            size_t segment_elements);
// True if a call that may choose takes two levels. Its larger buffer has this many bytes. select.cc
bool UsesTwoLevels(size_t bytes, const HostMap& hosts, const CommOptions& options);

// A dense segment has 32 times the bytes of a compressed one. It is cut in four, so that the
// exchanges of a tensor of a few MiB overlap as well.
constexpr size_t DenseSegmentElements(size_t segment_elements) {
  return segment_elements / 4 + (segment_elements % 4 != 0);  // 0: a chunk is one segment
}

// One exchange: every rank receives all packets and does the server's work for every chunk, with a
// replicated server residual, so that its bytes equal those of PlanAllReduceSra. Compressed only.
// allreduce_one_exchange.cc
Plan PlanAllReduceOneExchange(const PlanKey& key, uint32_t rank, uint32_t ranks);

// One exchange of sparse packets: every rank receives those of all, whose sum is the result. No
// server compresses it again. allreduce_one_hop.cc
Plan PlanAllReduceOneHop(const PlanKey& key, uint32_t rank, uint32_t ranks,
                         size_t segment_elements);

// Headers from every rank to every other, then the transport's own allreduce. Dense fp32 only.
// allreduce_native.cc
Plan PlanNative(const PlanKey& key, uint32_t rank, uint32_t ranks);

// Scatter and reduce; compressed without compressing again. reduce_scatter.cc
Plan PlanReduceScatter(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);
// Adds up inside hosts, and then scatters and reduces between them. reduce_scatter_two_levels.cc
Plan PlanReduceScatterTwoLevels(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                                size_t segment_elements);

// Sends each rank's chunk to all; with error feedback, its difference from the estimate that all
// ranks hold. In two levels ranks pass on what came from other hosts. all_gather.cc
Plan PlanAllGather(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                   size_t segment_elements);

// Sends each rank a chunk of its own. all_to_all.cc
Plan PlanAllToAll(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);

// The same with a count for every pair of ranks, which are set before each call. Only sizes change,
// so this allocates nothing. all_to_all_v.cc
Plan PlanAllToAllv(const PlanKey& key, uint32_t rank, uint32_t ranks);
// Element counts by peer, and where in the buffer each range begins.
struct PairCounts {
  const size_t* send_counts = nullptr;
  const size_t* send_begins = nullptr;
  const size_t* receive_counts = nullptr;
  const size_t* receive_begins = nullptr;
};
void ResizeAllToAllv(const PairCounts& pairs, Plan* plan);
// Resizes a dense plan to `count` elements of each message from number `begin` on, and removes the
// steps of those that are not so long: call it on a copy. The plan's buffers have `count` elements
// for each rank. Headers name the elements that are left at `begin`, so that a message whose length
// differs between the two ranks is found at its first elements.
void ResizeToPiece(const PairCounts& pairs, size_t begin, size_t count, Plan* plan);
size_t TensorElementsOf(const PairCounts& pairs, size_t ranks);

// One side of a pair of ranks: sends to the peer, or receives from it. A rank that is its own peer
// copies when it receives. send_receive.cc
Plan PlanSendReceive(const PlanKey& key, uint32_t rank, uint32_t ranks);

// Sends the root's buffer to all, directly or by way of the other ranks. Every pair exchanges
// headers, so that ranks notice when their calls differ. broadcast.cc
Plan PlanBroadcast(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements);
// The same in two levels, without the headers of those who have nothing to send.
// broadcast_two_levels.cc
Plan PlanBroadcastTwoLevels(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                            size_t segment_elements);

// Headers from every rank to every other. broadcast.cc
Plan PlanBarrier(const PlanKey& key, uint32_t rank, uint32_t ranks);

// Copies input to output, which is every collective's work on a single rank. broadcast.cc
Plan PlanCopy(const PlanKey& key);

// True if the calls of a compressed tensor take one exchange. select.cc
bool UsesOneExchange(size_t count, uint32_t ranks, const CommOptions& options);
// True if a broadcast is so short that the root had better send all of it to every rank. select.cc
bool UsesOneExchangeToBroadcast(const PlanKey& key, uint32_t ranks);

// The selection table: picks the algorithm for a key. select.cc
Plan SelectPlan(const PlanKey& key, uint32_t rank, const HostMap& hosts, size_t segment_elements);

// Chunks of a compressed allreduce with this key; both of its algorithms use the same.
inline Partition ChunksOf(const PlanKey& key, uint32_t ranks) {
  return {key.count, ranks, key.chunk_alignment, key.codec.block, 0};
}

// A packet with all chunks of a tensor: the scales of chunks 0, 1, ..., then all bits or codes.
PacketShape WholeShape(const PlanKey& key, uint32_t ranks, const PacketFormat& format);

}  // namespace onebit
