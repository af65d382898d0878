// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The 64-byte header of every message (FORMAT.md, "Header"): who sent which part of which call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "codec/codec.h"
#include "kernels/kernels.h"

namespace onebit {

inline constexpr size_t kHeaderBytes = 64;
inline constexpr uint8_t kFormatVersion = 1;

enum class Collective : uint8_t {
  kBarrier = 0,
  kBroadcast = 1,
  kAllReduce = 2,
  kReduceScatter = 3,
  kAllGather = 4,
  kAllToAll = 5,
  kAllToAllv = 6,
  kGroup = 7,
  kSendRecv = 8,
};
enum class ReduceOp : uint8_t { kSum = 0, kMax = 2, kMin = 3, kAvg = 4 };

// True for collectives that can have two levels (FORMAT.md, section 21).
constexpr bool CanHaveLevels(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kAllGather || collective == Collective::kBroadcast;
}
// No call has more exchanges.
inline constexpr uint32_t kMostExchanges = 4;
// The number of the last exchange of a call with two levels.
constexpr uint32_t LastExchangeOfLevels(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kGroup ? 4 : 3;
}
// True if ranks of a host send each other the chunks of several hosts or ranks in this exchange of
// two levels, so that segments are counted on from chunk to chunk.
constexpr bool PassesInsideHosts(Collective collective, uint32_t exchange) {
  switch (collective) {
    case Collective::kReduceScatter:
      return exchange == 1;
    case Collective::kAllGather:
      return exchange == 2;
    case Collective::kBroadcast:
      return exchange == 3;
    default:
      return exchange == 1 || exchange == 4;
  }
}
// True if exchange 1 of a compressed call with two levels carries elements.
constexpr bool SumsInsideHosts(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

// Parameters of one call, on which all ranks must agree; the same in every message of the call.
struct CallDescriptor {
  uint32_t comm_id = 0;
  uint64_t sequence = 0;  // calls on this communicator before this one
  Collective collective = Collective::kBarrier;
  // Elements as the collective counts them: those of the tensor, or of each rank's part. In an
  // all-to-all-v those of one message, or 0 for the call as a whole. In a group: its calls.
  uint64_t count = 0;
  uint32_t tensor_id = 0;  // in compressed calls; the root in a broadcast
  kernels::DataType type = kernels::DataType::kF32;
  ReduceOp op = ReduceOp::kSum;
  Codec codec;
  uint16_t chunk_alignment = 0;
  bool has_server_residual = false;
  bool is_one_exchange = false;
  bool has_two_levels = false;
  // With one exchange every rank keeps a replica of the server residual, in an all-gather one of
  // the estimates that all ranks share. Results are equal only while replicas are, which these
  // members decide. All zero in other calls.
  bool is_replica_bf16 = false;
  bool is_replica_transactional = false;
  uint8_t replica_age = 0;
  uint32_t mask_digest = 0;  // 0: no mask; in a group: GroupDigest
  // The call is a sync of src/sync, whose weight sum must be equal as well: mask_digest contains
  // its bits by xor.
  bool is_sync = false;
  bool is_weighted = false;  // what ranks contribute has weights
  // Blocks restart at cuts (codec/cuts.h): mask_digest contains their digest by xor.
  bool has_cuts = false;

  friend bool operator==(const CallDescriptor&, const CallDescriptor&) = default;
};

// True if messages of this exchange are packets, or verdicts.
constexpr bool HasPackets(const CallDescriptor& call, uint32_t exchange) {
  const bool has_elements =
      call.has_two_levels && exchange == 1 && SumsInsideHosts(call.collective);
  return !call.codec.is_dense() && !has_elements;
}

// One message of a call.
struct MessageHeader {
  CallDescriptor call;
  uint8_t exchange = 1;  // 1 or 2; with two levels up to 4
  bool is_nonfinite = false;
  bool has_payload_checksum = false;
  bool has_failed = false;  // the sender failed, now or earlier: what it sends is no result
  uint16_t segment = 0;
  uint16_t segment_count = 1;
  kernels::Checksum payload_checksum;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

void EncodeHeader(const MessageHeader& header, HeaderBytes* bytes);

// kCorrupt: the bytes are no header, or damaged. kMismatch: they come from another version of the
// library. The text names no ranks, because only the caller knows them.
Result<MessageHeader> DecodeHeader(std::span<const std::byte> bytes);

// Digest of a mask, or of the offsets of cuts; never 0 (FORMAT.md, "Checksums").
uint32_t ContentDigest(std::span<const std::byte> bytes);

// "count 1024 here, 1000 there; ..." for the members in which two calls differ; "" if there are
// none. If collectives or modes differ, the differences that follow from that are left out.
// own_mask: digest of this rank's mask alone, which tells seeds from what the headers combine.
std::string DescribeDifference(const CallDescriptor& here, const CallDescriptor& there,
                               uint32_t own_mask = 0);

// "allreduce 17 of 1024 float32, avg, ef block 4096 l2, tensor 3"
std::string Describe(const CallDescriptor& call);

// Groups (FORMAT.md, "Groups"). The payload begins with a table of one word per call: the call's
// digest, with this bit set if one of its values is not finite.
inline constexpr uint32_t kGroupNonfinite = 1;

// Digest of a call in a group: that of its header if it were alone, without communicator and call
// number. Bit 0 is clear.
uint32_t DigestOf(const CallDescriptor& call, uint16_t segment_count);
// Digest of the table of all calls without their flags, which the headers of the group carry.
uint32_t GroupDigest(std::span<const uint32_t> digests);

const char* NameOf(kernels::DataType type);
const char* NameOf(Collective collective);

// True if the collective reduces, and so has an op.
constexpr bool HasOp(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

}  // namespace onebit
