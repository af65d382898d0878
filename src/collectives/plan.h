// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A plan: the steps of one collective on one rank, with what each waits for. Executors run plans;
// algorithms (allreduce_sra.cc, ...) write them. User buffers are symbolic, control flow is static,
// so one plan serves every call of its shape.
#pragma once

#include <cstdint>
#include <vector>

#include "codec/message_header.h"
#include "codec/packet.h"
#include "collectives/partition.h"

namespace onebit {

// The memory a step works on: the caller's buffers, or the plan's own packet space.
enum class Space : uint8_t { kNone, kInput, kOutput, kPackets };

struct Region {
  Space space = Space::kNone;
  size_t offset = 0;  // bytes
  size_t bytes = 0;
};

enum class StepKind : uint8_t {
  kCompress,  // elements of the input -> packet
  kReduce,    // packets (or dense pieces) of all ranks -> packet (or piece of the output)
  kDecode,    // packet -> elements of the output
  kVerdict,   // whether all this rank computed is finite -> packet that says no more than that
  kSend,      // region -> peer
  kReceive,   // peer -> region
  kCopy,      // region of the input -> elements of the output
  kNative,    // input of all ranks -> output, by the transport
  // Of a group (group_plan.h), in place of the send and receive steps of its calls:
  kPack,    // region -> its place in a message of the group
  kUnpack,  // its place in a message of the group -> region
};

inline constexpr uint32_t kAllChunks = UINT32_MAX;
inline constexpr uint32_t kNoStep = UINT32_MAX;
inline constexpr uint32_t kNoPacket = UINT32_MAX;
inline constexpr uint32_t kAllCalls = UINT32_MAX;

struct Step {
  StepKind kind = StepKind::kCopy;
  uint8_t exchange = 1;  // of a message: 1 or 2
  uint16_t segment = 0;
  uint32_t chunk = 0;     // whose elements, or kAllChunks
  uint32_t peer = 0;      // of a message
  ElementRange elements;  // of the tensor
  // Compress and reduce: where the packet goes. Decode: where it is. Messages: the payload.
  Region region;
  PacketShape shape;            // of the packet; empty in dense plans
  uint32_t packet = kNoPacket;  // compress, reduce: (first) packet made; send: packet sent
  // Reduce: the piece of peer r is at sources + r * stride of the packet space, this rank's own
  // packet at own_source (in dense plans its own piece is read from the input).
  // Compress of all chunks into one packet each: the packet of chunk j is at sources + j * stride.
  // Pack and unpack: the piece is at sources of the group's packet space, the word of the call in
  // the message's table at own_source.
  size_t sources = 0;
  size_t stride = 0;
  size_t own_source = 0;
  uint32_t call = 0;              // of a group: whose step, or kAllCalls: the group's own message
  uint32_t dependency_count = 0;  // steps that must be done first
  uint32_t first_successor = 0;   // in Plan::successors
  uint32_t successor_count = 0;
};

// What a plan depends on; equal keys give equal plans.
struct PlanKey {
  Collective collective = Collective::kBarrier;
  CodecKind codec = CodecKind::kDense;
  bool is_one_exchange = false;
  bool is_native = false;  // by the transport's own allreduce
  kernels::DataType type = kernels::DataType::kF32;
  uint32_t block = 0;
  uint16_t chunk_alignment = 64;
  uint32_t root = 0;
  size_t count = 0;              // as in the header; 0 in an all-to-all-v
  bool has_drift_check = false;  // an all-gather that compares what ranks hold of each other
  // Bytes in front of every region of the packet space that is sent or received: for its header,
  // where the transport has none.
  uint32_t header_room = 0;

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct Plan {
  PlanKey key;
  uint32_t ranks = 1;
  uint32_t rank = 0;
  Partition partition{0, 1, 8, 1, 0};
  size_t tensor_elements = 0;  // of the larger of the two buffers
  // Elements of the tensor at which the caller's buffers begin: where one of them is a single
  // chunk, that of this rank.
  size_t input_begin = 0;
  size_t output_begin = 0;
  // What workers' scales are rounded to. If they go to an output as they are it is the output's
  // type, so that the residual knows of all that is lost.
  kernels::DataType scale_type = kernels::DataType::kF32;
  size_t packet_space_bytes = 0;
  uint32_t packet_count = 0;
  uint64_t wire_bytes = 0;         // this rank sends, headers included
  uint32_t messages_per_peer = 0;  // this rank receives from each peer
  std::vector<Step> steps;
  std::vector<uint32_t> successors;
  std::vector<uint32_t> receive_steps;  // see ReceiveStep

  uint32_t segments() const { return static_cast<uint32_t>(partition.segments()); }

  // The step that a message of `peer` belongs to; kNoStep if no such message is expected.
  uint32_t ReceiveStep(uint32_t exchange, uint32_t peer, uint32_t segment) const {
    if (exchange < 1 || exchange > 2 || peer >= ranks || segment >= segments()) return kNoStep;
    return receive_steps[((exchange - 1) * ranks + peer) * segments() + segment];
  }
};

// Bytes of the element range in a dense buffer.
inline Region DenseRegion(Space space, ElementRange elements, kernels::DataType type) {
  const size_t element_bytes = kernels::BytesOf(type);
  return {space, elements.begin * element_bytes, elements.count * element_bytes};
}

}  // namespace onebit
