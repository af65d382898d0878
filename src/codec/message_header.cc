// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/message_header.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

namespace onebit {
namespace {

using kernels::DataType;

constexpr uint32_t kMagic = 0x5449'4231u;  // the bytes "1BIT"

// Offsets as in FORMAT.md.
enum Offset : size_t {
  kAtMagic = 0,
  kAtVersion = 4,
  kAtExchange = 5,
  kAtFlags = 6,
  kAtReplicaAge = 7,
  kAtComm = 8,
  kAtHeaderCheck = 12,
  kAtSequence = 16,
  kAtCount = 24,
  kAtTensor = 32,
  kAtMaskDigest = 36,
  kAtBlock = 40,
  kAtCollective = 44,
  kAtType = 45,
  kAtOp = 46,
  kAtCodec = 47,
  kAtAlignment = 48,
  kAtRule = 50,
  kAtParameters = 51,
  kAtSegment = 52,
  kAtSegmentCount = 54,
  kAtSum = 56,
  kAtWeighted = 60,
};

enum Flag : uint8_t { kNonfinite = 1, kChecksum = 2, kFailure = 4, kKnownFlags = 7 };
enum Parameter : uint8_t {
  kServerResidual = 1,
  kOneExchange = 2,
  kReplicaBf16 = 4,
  kReplicaTransactional = 8,
  kTwoLevels = 16,
  kCuts = 32,
  kWeighted = 64,
  kSync = 128,
};

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; a big-endian port swaps here and in the kernels");

template <typename T>
void Put(std::byte* bytes, Offset offset, T value) {
  std::memcpy(bytes + offset, &value, sizeof(value));
}

template <typename T>
T Get(const std::byte* bytes, Offset offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(value));
  return value;
}

// Both sums of a byte string, folded into one word.
uint32_t Fold(kernels::Checksum checksum) {
  return checksum.sum ^ std::rotl(checksum.weighted, 16);
}

// Check of a header, taken with its own check as zero.
uint32_t HeaderCheck(const std::byte* bytes) {
  HeaderBytes copy;
  std::memcpy(copy.data(), bytes, kHeaderBytes);
  Put<uint32_t>(copy.data(), kAtHeaderCheck, 0);
  return Fold(kernels::cpu::ChecksumOf(copy.data(), copy.size()));
}

uint8_t WireType(DataType type) { return static_cast<uint8_t>(type); }

template <typename Enum>
std::optional<Enum> OneOf(uint8_t value, std::initializer_list<Enum> values) {
  for (Enum candidate : values) {
    if (static_cast<uint8_t>(candidate) == value) return candidate;
  }
  return std::nullopt;
}

const char* NameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kAvg:
      return "avg";
  }
  return "?";
}

}  // namespace

const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "float32";
    case DataType::kF16:
      return "float16";
    case DataType::kBf16:
      return "bfloat16";
    case DataType::kI32:
      return "int32";
    case DataType::kI64:
      return "int64";
    case DataType::kU8:
      return "uint8";
    case DataType::kF64:
      return "float64";
  }
  return "?";
}

const char* NameOf(Collective collective) {
  switch (collective) {
    case Collective::kBarrier:
      return "barrier";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllReduce:
      return "allreduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kAllToAllv:
      return "all-to-all-v";
    case Collective::kGroup:
      return "group";
    case Collective::kSendRecv:
      return "send/recv";
  }
  return "?";
}

void EncodeHeader(const MessageHeader& header, HeaderBytes* bytes) {
  const CallDescriptor& call = header.call;
  const CodecOnWire codec = ToWire(call.codec, call.is_one_exchange);
  std::byte* out = bytes->data();
  Put<uint32_t>(out, kAtMagic, kMagic);
  Put<uint8_t>(out, kAtVersion, kFormatVersion);
  Put<uint8_t>(out, kAtExchange, header.exchange);
  Put<uint8_t>(out, kAtFlags,
               (header.is_nonfinite ? kNonfinite : 0) |
                   (header.has_payload_checksum ? kChecksum : 0) |
                   (header.has_failed ? kFailure : 0));
  Put<uint8_t>(out, kAtReplicaAge, call.replica_age);
  Put<uint32_t>(out, kAtComm, call.comm_id);
  Put<uint64_t>(out, kAtSequence, call.sequence);
  Put<uint64_t>(out, kAtCount, call.count);
  Put<uint32_t>(out, kAtTensor, call.tensor_id);
  Put<uint32_t>(out, kAtMaskDigest, call.mask_digest);
  Put<uint32_t>(out, kAtBlock, codec.block);
  Put<uint8_t>(out, kAtCollective, static_cast<uint8_t>(call.collective));
  Put<uint8_t>(out, kAtType, WireType(call.type));
  Put<uint8_t>(out, kAtOp, static_cast<uint8_t>(call.op));
  Put<uint8_t>(out, kAtCodec, codec.kind);
  Put<uint16_t>(out, kAtAlignment, call.chunk_alignment);
  Put<uint8_t>(out, kAtRule, codec.rule);
  Put<uint8_t>(out, kAtParameters,
               (call.has_server_residual ? kServerResidual : 0) |
                   (call.is_one_exchange ? kOneExchange : 0) |
                   (call.is_replica_bf16 ? kReplicaBf16 : 0) |
                   (call.is_replica_transactional ? kReplicaTransactional : 0) |
                   (call.has_two_levels ? kTwoLevels : 0) | (call.has_cuts ? kCuts : 0) |
                   (call.is_weighted ? kWeighted : 0) | (call.is_sync ? kSync : 0));
  Put<uint16_t>(out, kAtSegment, header.segment);
  Put<uint16_t>(out, kAtSegmentCount, header.segment_count);
  Put<uint32_t>(out, kAtSum, header.payload_checksum.sum);
  Put<uint32_t>(out, kAtWeighted, header.payload_checksum.weighted);
  Put<uint32_t>(out, kAtHeaderCheck, HeaderCheck(out));
}

uint32_t DigestOf(const CallDescriptor& call, uint16_t segment_count) {
  MessageHeader alone;
  alone.call = call;
  alone.call.comm_id = 0;
  alone.call.sequence = 0;
  alone.segment_count = segment_count;
  HeaderBytes bytes;
  EncodeHeader(alone, &bytes);
  return Get<uint32_t>(bytes.data(), kAtHeaderCheck) & ~kGroupNonfinite;
}

uint32_t ContentDigest(std::span<const std::byte> bytes) {
  const uint32_t digest = Fold(kernels::cpu::ChecksumOf(bytes.data(), bytes.size()));
  return digest == 0 ? 1 : digest;
}

uint32_t GroupDigest(std::span<const uint32_t> digests) {
  return Fold(kernels::cpu::ChecksumOf(digests.data(), digests.size_bytes()));
}

Result<MessageHeader> DecodeHeader(std::span<const std::byte> bytes) {
  if (bytes.size() != kHeaderBytes) {
    return Error(Code::kCorrupt, "header has {} bytes, not {}", bytes.size(), kHeaderBytes);
  }
  const std::byte* in = bytes.data();
  if (const auto magic = Get<uint32_t>(in, kAtMagic); magic != kMagic) {
    return Error(Code::kCorrupt, "message begins with {:#010x}: not a onebit message", magic);
  }
  if (const auto version = Get<uint8_t>(in, kAtVersion); version != kFormatVersion) {
    return Error(Code::kMismatch,
                 "packet has version {}, this library reads {}: use one version on all ranks",
                 version, kFormatVersion);
  }
  if (Get<uint32_t>(in, kAtHeaderCheck) != HeaderCheck(in)) {
    return Error(Code::kCorrupt, "header fails its check: damaged in transit");
  }
  const auto flags = Get<uint8_t>(in, kAtFlags);
  const auto parameters = Get<uint8_t>(in, kAtParameters);
  const auto exchange = Get<uint8_t>(in, kAtExchange);
  const auto collective =
      OneOf(Get<uint8_t>(in, kAtCollective),
            {Collective::kBarrier, Collective::kBroadcast, Collective::kAllReduce,
             Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll,
             Collective::kAllToAllv, Collective::kGroup, Collective::kSendRecv});
  const auto type = OneOf(Get<uint8_t>(in, kAtType),
                          {DataType::kF32, DataType::kF16, DataType::kBf16, DataType::kI32,
                           DataType::kI64, DataType::kU8, DataType::kF64});
  const auto op = OneOf(Get<uint8_t>(in, kAtOp),
                        {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg});
  const bool is_one_exchange = (parameters & kOneExchange) != 0;
  const auto codec = FromWire({.kind = Get<uint8_t>(in, kAtCodec),
                               .rule = Get<uint8_t>(in, kAtRule),
                               .block = Get<uint32_t>(in, kAtBlock)},
                              is_one_exchange);
  const auto segment = Get<uint16_t>(in, kAtSegment);
  const auto segment_count = Get<uint16_t>(in, kAtSegmentCount);
  const bool has_two_levels = (parameters & kTwoLevels) != 0;
  if (!collective || !type || !op || !codec || (flags & ~kKnownFlags) != 0 || exchange < 1 ||
      exchange > (has_two_levels ? LastExchangeOfLevels(*collective) : 2) ||
      (segment >= segment_count && !(has_two_levels && PassesInsideHosts(*collective, exchange))) ||
      (has_two_levels &&
       (is_one_exchange || !(CanHaveLevels(*collective) || *collective == Collective::kGroup)))) {
    return Error(Code::kCorrupt, "header has a member outside its range");
  }
  MessageHeader header;
  header.call = {
      .comm_id = Get<uint32_t>(in, kAtComm),
      .sequence = Get<uint64_t>(in, kAtSequence),
      .collective = *collective,
      .count = Get<uint64_t>(in, kAtCount),
      .tensor_id = Get<uint32_t>(in, kAtTensor),
      .type = *type,
      .op = *op,
      .codec = *codec,
      .chunk_alignment = Get<uint16_t>(in, kAtAlignment),
      .has_server_residual = (parameters & kServerResidual) != 0,
      .is_one_exchange = is_one_exchange,
      .has_two_levels = has_two_levels,
      .is_replica_bf16 = (parameters & kReplicaBf16) != 0,
      .is_replica_transactional = (parameters & kReplicaTransactional) != 0,
      .replica_age = Get<uint8_t>(in, kAtReplicaAge),
      .mask_digest = Get<uint32_t>(in, kAtMaskDigest),
      .is_sync = (parameters & kSync) != 0,
      .is_weighted = (parameters & kWeighted) != 0,
      .has_cuts = (parameters & kCuts) != 0,
  };
  header.exchange = exchange;
  header.is_nonfinite = (flags & kNonfinite) != 0;
  header.has_payload_checksum = (flags & kChecksum) != 0;
  header.has_failed = (flags & kFailure) != 0;
  header.segment = segment;
  header.segment_count = segment_count;
  header.payload_checksum = {Get<uint32_t>(in, kAtSum), Get<uint32_t>(in, kAtWeighted)};
  return header;
}

std::string DescribeDifference(const CallDescriptor& here, const CallDescriptor& there,
                               uint32_t own_mask) {
  std::string text;
  const auto add = [&text](const char* name, const auto& ours, const auto& theirs) {
    if (ours == theirs) return;
    AppendFormat(&text, "{}{} {} here, {} there", text.empty() ? "" : "; ", name, ours, theirs);
  };
  using std::string_view;
  add("communicator", here.comm_id, there.comm_id);
  add("call number", here.sequence, there.sequence);
  add("collective", string_view(NameOf(here.collective)), string_view(NameOf(there.collective)));
  if (here.collective != there.collective) return text;  // what else differs follows from it
  if (here.collective == Collective::kGroup) {
    add("calls in the group", here.count, there.count);
    if (here.count == there.count) add("digest of its calls", here.mask_digest, there.mask_digest);
    return text;
  }
  if (here.collective != Collective::kAllToAllv) {
    add("count", here.count, there.count);
  } else if (here.count != there.count) {
    AppendFormat(&text, "{}recvcounts has {} here, sendcounts {} there", text.empty() ? "" : "; ",
                 here.count, there.count);
  }
  add("type", string_view(NameOf(here.type)), string_view(NameOf(there.type)));
  add("op", string_view(NameOf(here.op)), string_view(NameOf(there.op)));
  const Codec& ours = here.codec;
  const Codec& theirs = there.codec;
  add("mode", string_view(ours.Mode()), string_view(theirs.Mode()));
  if (!ours.is_dense() && !theirs.is_dense()) {
    add("codec", string_view(ours.Name()), string_view(theirs.Name()));
  }
  if (ours.kind != theirs.kind) return text;
  const auto scales_of = [](const Codec& codec) {
    return string_view(codec.has_former_scales ? "rounded to nearest" : "rounded up");
  };
  if (ours.low_bit == theirs.low_bit) {
    add("scales of int8s (use one version of onebit on all ranks)", scales_of(ours),
        scales_of(theirs));
  }
  add(here.collective == Collective::kBroadcast ? "root" : "tensor id", here.tensor_id,
      there.tensor_id);
  add("block", BlockText(ours.block), BlockText(theirs.block));
  add("k", ours.sparse.k, theirs.sparse.k);
  add("values", string_view(NameOf(ours.sparse.values)), string_view(NameOf(theirs.sparse.values)));
  add("scale rule", string_view(NameOf(ours.rule)), string_view(NameOf(theirs.rule)));
  add("chunk alignment", here.chunk_alignment, there.chunk_alignment);
  add("server residual", here.has_server_residual, there.has_server_residual);
  if (ours.is_sparse()) {
    add("hops", here.is_one_exchange ? 1 : 2, there.is_one_exchange ? 1 : 2);
  } else {
    add("one exchange (ONEBIT_ONE_EXCHANGE_ELEMENTS)", here.is_one_exchange, there.is_one_exchange);
  }
  add(ours.is_dense() ? "two levels (ONEBIT_TWO_LEVEL_BYTES)"
                      : "two levels (config.levels, ONEBIT_TWO_LEVEL_BYTES)",
      here.has_two_levels, there.has_two_levels);
  const auto type_of = [](const CallDescriptor& call) {
    return string_view(call.is_replica_bf16 ? "bfloat16" : "float32");
  };
  add("residual type", type_of(here), type_of(there));
  add("transactional", here.is_replica_transactional, there.is_replica_transactional);
  const bool has_draws = ours.sparse.is_random && theirs.sparse.is_random;
  const bool is_delta =
      here.collective == Collective::kAllGather || here.collective == Collective::kSendRecv;
  add(has_draws  ? "epoch of the draws (1 + (calls - 1) mod 255)"
      : is_delta ? "age of what ranks hold of each other (calls since it was zero)"
                 : "age of the server residual (calls since it was zero)",
      here.replica_age, there.replica_age);
  add("weighted (onebitCompressorSetWeight)", here.is_weighted, there.is_weighted);
  add("cuts", here.has_cuts, there.has_cuts);
  add("sync", here.is_sync, there.is_sync);
  if (here.is_sync != there.is_sync) return text;
  if (has_draws && !here.is_sync) {  // the mask alone is equal as a rule
    add("seed (its halves combined by xor, where masks are equal)", here.mask_digest ^ own_mask,
        there.mask_digest ^ own_mask);
    return text;
  }
  if (!here.is_sync) {
    add(ours.rounds_at_random() ? "digest of mask and seed"
        : here.has_cuts         ? "digest of mask and cuts"
                                : "mask digest",
        here.mask_digest, there.mask_digest);
  }
  if (here.is_sync && here.mask_digest != there.mask_digest) {  // the two travel as one number
    AppendFormat(&text,
                 "{}the weight sum, or the mask{}: pass equal weights to onebitSyncStep, and equal "
                 "schedules to onebitSyncCreate",
                 text.empty() ? "" : "; ", here.has_cuts ? " or the cuts" : "");
  }
  return text;
}

std::string Describe(const CallDescriptor& call) {
  std::string text = Format("{} {}", NameOf(call.collective), call.sequence);
  if (call.collective == Collective::kBarrier) return text;
  if (call.collective == Collective::kGroup) return text + Format(" of {} calls", call.count);
  if (call.collective == Collective::kAllToAllv) {  // a count for each pair of ranks
    AppendFormat(&text, " of {}", NameOf(call.type));
  } else {
    AppendFormat(&text, " of {} {}", call.count, NameOf(call.type));
  }
  if (call.collective == Collective::kBroadcast) {
    return text + Format(" from rank {}", call.tensor_id);
  }
  if (HasOp(call.collective)) AppendFormat(&text, ", {}", NameOf(call.op));
  AppendFormat(&text, ", {}", call.codec.Text());
  if (!call.codec.is_dense()) AppendFormat(&text, ", tensor {}", call.tensor_id);
  return text;
}

}  // namespace onebit
