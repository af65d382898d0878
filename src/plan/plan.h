// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A plan has the steps of one collective on one rank and their dependencies. Algorithms
// (allreduce_sra.cc, ...) build plans, executors run them. User buffers are symbolic and control
// flow is static, so one plan serves every call of its shape.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec/cuts.h"
#include "codec/message_header.h"
#include "codec/packet.h"
#include "plan/partition.h"

namespace onebit {

// The memory of a region: the caller's buffers, or the plan's own packet space.
enum class Space : uint8_t { kNone, kInput, kOutput, kPackets };

struct Region {
  Space space = Space::kNone;
  size_t offset = 0;  // bytes
  size_t bytes = 0;
};

enum class StepKind : uint8_t {
  kStage,    // elements of the input -> packet space, from where a transport of the host sends them
  kHostSum,  // dense pieces of the ranks on this host -> their sum, or their mean in fp32
  kCompress,  // elements of the input, or of the mean of this host -> packet
  kReduce,    // packets (or dense pieces) of all ranks or hosts -> packet (or piece of the output)
  kDecode,    // packet -> elements of the output
  kVerdict,   // whether all results of this rank are finite -> packet with only that flag
  kSend,      // region -> peer
  kReceive,   // peer -> region
  kCopy,      // region of the input -> elements of the output
  kNative,    // all of the call, by the transport
  // Steps of a group (group_plan.h) that replace the send and receive steps of its calls:
  kPack,    // region -> its part of a group's message
  kUnpack,  // its part of a group's message -> region
};

// "compress"
const char* NameOf(StepKind kind);

inline constexpr uint32_t kAllChunks = UINT32_MAX;
inline constexpr uint32_t kNoStep = UINT32_MAX;
inline constexpr uint32_t kNoPacket = UINT32_MAX;
inline constexpr uint32_t kAllCalls = UINT32_MAX;
inline constexpr uint32_t kNoPiece = UINT32_MAX;
inline constexpr size_t kNoOffset = SIZE_MAX;

struct Step {
  StepKind kind = StepKind::kCopy;
  uint8_t exchange = 1;  // messages: 1 to 4
  // Messages inside a host of a plan with two levels: number * segments + segment, because the same
  // two ranks exchange the chunks of several hosts or ranks, whose number this is.
  uint16_t segment = 0;
  uint32_t chunk = 0;     // owner of the elements, or kAllChunks
  uint32_t peer = 0;      // messages only
  ElementRange elements;  // of the tensor
  // Compress and reduce: the packet made. Decode: the packet read. Messages: the payload.
  Region region;
  PacketShape shape;  // of the packet; empty in dense plans
  // Compress, reduce: (first) packet made; send: packet sent; receive: one that is passed on.
  uint32_t packet = kNoPacket;
  // Reduce: the piece of peer r is at sources + r * stride in the packet space, this rank's own
  // packet at own_source (in dense plans its own piece is read from the input). With two levels,
  // peers are hosts, or in a sum of a host its ranks. Compress of all
  // chunks into one packet each: the packet of chunk j is at sources + j * stride. Pack and unpack:
  // the piece is at sources in the group's packet space, the call's word in the message's table at
  // own_source.
  size_t sources = 0;
  size_t stride = 0;
  // With two levels and weights: in a sum of a host the weights of its ranks; in the receive of a
  // piece of one that of the sender; in compress the weight of the host, if it has several ranks.
  size_t own_source = 0;
  // Sum of a host, reduce with two levels: the number of pieces, and this rank's own. A piece that
  // another step has put where those of peers are is nobody's own.
  uint32_t pieces = 0;  // 0: one for each rank
  uint32_t own_piece = kNoPiece;
  // A mean in fp32, in the packet space. Reduce of packets with weights, or of hosts: room for it.
  // Compress with two levels: that of this host, if it has several ranks.
  size_t mean = kNoOffset;
  uint32_t call = 0;              // in a group; kAllCalls for the group's own messages
  uint32_t dependency_count = 0;  // steps that must be done first
  uint32_t first_successor = 0;   // in Plan::successors
  uint32_t successor_count = 0;
};

// Everything a plan depends on. Equal keys give equal plans.
struct PlanKey {
  Collective collective = Collective::kBarrier;
  Codec codec;
  bool is_one_exchange = false;
  bool is_native = false;       // the transport's own collective
  bool has_two_levels = false;  // inside hosts, and between them
  kernels::DataType type = kernels::DataType::kF32;
  uint16_t chunk_alignment = 64;
  uint32_t root = 0;             // of a broadcast; in a send or receive the peer
  bool is_receive = false;       // the call is the receiving side of a pair of ranks
  size_t count = 0;              // as in headers; 0 in an all-to-all-v
  bool has_drift_check = false;  // a delta whose ranks compare estimates
  bool is_weighted = false;      // the packets of exchange 1 begin with weights
  bool is_staged = false;        // the transport cannot read the input, which is on a device
  // Bytes before every message's region in the packet space, for the header if the transport has no
  // separate one.
  uint32_t header_room = 0;
  std::shared_ptr<const Cuts> cuts = nullptr;  // of the compressor

  // Formats of the packets of workers, and of those that a server makes.
  PacketFormat packet_format() const { return {codec, is_weighted, has_two_levels}; }
  // With two levels some ranks see no packets but these, whose weight is that of all.
  PacketFormat mean_format() const {
    return {codec, is_weighted && has_two_levels, has_two_levels};
  }
  // In collectives of parts, and of pairs of ranks: when ranks tell each other of values that are
  // not finite.
  uint8_t verdict_exchange() const { return has_two_levels ? 3 : 2; }
  // True if packets change what ranks hold of each other: in an all-gather all of them, in a send
  // and its receive the two.
  bool is_delta() const {
    return codec.has_feedback() &&
           (collective == Collective::kAllGather || collective == Collective::kSendRecv);
  }

  // True for sends and receives, whose messages each belong to one call of this rank and its peer.
  bool is_pairs() const { return collective == Collective::kSendRecv; }

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct Plan {
  PlanKey key;
  uint32_t ranks = 1;
  uint32_t rank = 0;
  Partition partition{0, 1, 8, 1, 0};
  size_t tensor_elements = 0;  // of the larger buffer
  // Allreduce: the elements whose residuals this rank has as a worker, and as a server.
  ElementRange compressed;
  ElementRange served;
  std::vector<uint32_t> compressed_chunks;  // reduce-scatter with two levels: the same for a worker
  // First tensor elements of the caller's buffers. A buffer of a single chunk begins at this
  // rank's.
  size_t input_begin = 0;
  size_t output_begin = 0;
  // Type to which workers' scales, or the values of low-bit codes, are rounded: the output's if
  // they are written to it unchanged, so that the residual contains that rounding, too.
  kernels::DataType scale_type = kernels::DataType::kF32;
  size_t packet_space_bytes = 0;
  uint32_t packet_count = 0;
  uint64_t wire_bytes = 0;  // sent by this rank, headers included
  uint32_t exchanges = 0;   // the last exchange of its messages
  std::vector<Step> steps;
  std::vector<uint32_t> successors;
  // The number of hosts, and HostMap::digest, where the result depends on which ranks share one.
  uint32_t hosts = 0;
  uint32_t hosts_digest = 0;
  std::vector<float> host_sizes;        // ranks on each host, if two levels need to know
  std::vector<uint32_t> receives;       // receive steps by peer, and in their order
  std::vector<uint32_t> first_receive;  // in `receives`, by peer; one more at the end
  std::vector<uint32_t> receive_index;  // the same steps by peer, exchange and segment

  uint32_t segments() const { return static_cast<uint32_t>(partition.segments()); }
  // True if this rank only copies, so that residuals stay as they were.
  bool is_alone() const { return ranks == 1 || (key.is_pairs() && key.root == rank); }

  // The number of pieces that a reduce step adds, or the sum of a host, and this rank's own.
  uint32_t PiecesOf(const Step& step) const { return step.pieces == 0 ? ranks : step.pieces; }
  uint32_t OwnPieceOf(const Step& step) const { return step.pieces == 0 ? rank : step.own_piece; }

  // The number of messages received from `peer`.
  uint32_t MessagesFrom(uint32_t peer) const {
    return first_receive[peer + 1] - first_receive[peer];
  }
  // The step that receives message number `index` of `peer`, in the order of the steps.
  uint32_t ReceiveInOrder(uint32_t peer, uint32_t index) const {
    return receives[first_receive[peer] + index];
  }

  // The step that receives this message of `peer`; kNoStep if it is not expected.
  uint32_t ReceiveStep(uint32_t exchange, uint32_t peer, uint32_t segment) const;
};

// Elements of the larger buffer of a call; 0 for an all-to-all-v, whose key has no counts.
inline size_t ElementsOf(const PlanKey& key, size_t ranks) {
  const bool has_parts = key.collective == Collective::kReduceScatter ||
                         key.collective == Collective::kAllGather ||
                         key.collective == Collective::kAllToAll;
  return has_parts ? key.count * ranks : key.count;
}

// Bytes of both buffers of a call, or of the larger one where the call can be in place. Equal on
// all ranks.
inline size_t BufferBytesOf(const PlanKey& key, size_t ranks) {
  const size_t buffers = key.collective == Collective::kAllToAll ? 2 : 1;
  return buffers * ElementsOf(key, ranks) * kernels::BytesOf(key.type);
}

// Bytes of the element range in a dense buffer.
inline Region DenseRegion(Space space, ElementRange elements, kernels::DataType type) {
  const size_t element_bytes = kernels::BytesOf(type);
  return {space, elements.begin * element_bytes, elements.count * element_bytes};
}

}  // namespace onebit
