// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "state/state_identity.h"

#include <cstring>

#include "base/state_differences.h"

namespace onebit {
namespace {

// Offsets as in STATE.md.
enum Offset : size_t {
  kAtCount = 0,
  kAtEpoch = 8,
  kAtCommits = 16,
  kAtBlock = 24,
  kAtRanks = 28,
  kAtRank = 32,
  kAtAlignment = 36,
  kAtCollective = 38,
  kAtMode = 39,
  kAtType = 40,
  kAtRule = 41,
  kAtResidualType = 42,
  kAtFlags = 43,
  kAtOp = 44,
  kAtZeros = 45,
  // Only sparse codecs have these:
  kAtSeed = 48,
  kAtEfDecay = 56,
  kAtSparseZeros = 60,
};
enum Flag : uint8_t { kServerResidual = 1, kOneExchange = 2, kKnownFlags = 3 };
constexpr uint8_t kNoOp = 0xff;

template <typename T>
void Put(std::byte* bytes, Offset offset, T value) {
  std::memcpy(bytes + offset, &value, sizeof(value));
}
template <typename T>
T Get(std::span<const std::byte> bytes, Offset offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename Enum>
void PutEnum(std::byte* bytes, Offset offset, Enum value) {
  Put(bytes, offset, static_cast<uint8_t>(value));
}
// Returns false if the byte is none of `values`.
template <typename Enum>
bool GetEnum(std::span<const std::byte> bytes, Offset offset, std::initializer_list<Enum> values,
             Enum* result) {
  const auto byte = Get<uint8_t>(bytes, offset);
  for (const Enum value : values) {
    if (static_cast<uint8_t>(value) != byte) continue;
    *result = value;
    return true;
  }
  return false;
}

const char* NameOfRule(kernels::ScaleRule rule) {
  return rule == kernels::ScaleRule::kL2 ? "l2" : "l1";
}

Differences DifferencesOfTensor(const StateIdentity& state, const StateIdentity& here) {
  Differences differences;
  differences
      .Compare<std::string_view>("collective", NameOf(state.collective), NameOf(here.collective))
      .Compare("elements", state.count, here.count)
      .Compare<std::string_view>("mode", HasFeedback(state.mode) ? "ef" : "plain",
                                 HasFeedback(here.mode) ? "ef" : "plain")
      .Compare("serverResidual", int{state.has_server_residual}, int{here.has_server_residual});
  return differences;
}

// Returns false if the members of a sparse codec have values that none has.
bool ReadSparse(std::span<const std::byte> bytes, StateIdentity* identity) {
  const auto sparse = SparseCodecOf(Get<uint8_t>(bytes, kAtRule));
  bool is_known = sparse.has_value() && sparse->has_one_hop == identity->is_one_exchange;
  if (sparse) identity->sparse = sparse->codec;
  identity->sparse.k = static_cast<uint16_t>(identity->block >> 16);
  identity->block &= 0xffffu;
  identity->seed = Get<uint64_t>(bytes, kAtSeed);
  identity->ef_decay = Get<float>(bytes, kAtEfDecay);
  is_known &= IsSparseBlock(identity->sparse, identity->block);
  is_known &= identity->ef_decay >= 0 && identity->ef_decay <= 1;
  return is_known && Get<uint32_t>(bytes, kAtSparseZeros) == 0;
}

}  // namespace

EncodedIdentity EncodeIdentity(const StateIdentity& identity) {
  EncodedIdentity encoded(identity.mode);
  std::byte* bytes = encoded.data();
  const bool is_sparse = IsSparse(identity.mode);
  Put(bytes, kAtCount, identity.count);
  Put(bytes, kAtEpoch, identity.epoch);
  Put(bytes, kAtCommits, identity.commits_since_zero);
  Put(bytes, kAtBlock,
      is_sparse ? identity.block | uint32_t{identity.sparse.k} << 16 : identity.block);
  Put(bytes, kAtRanks, identity.ranks);
  Put(bytes, kAtRank, identity.rank);
  Put(bytes, kAtAlignment, identity.chunk_alignment);
  PutEnum(bytes, kAtCollective, identity.collective);
  PutEnum(bytes, kAtMode, identity.mode);
  PutEnum(bytes, kAtType, identity.type);
  if (is_sparse) {
    Put(bytes, kAtRule, WireCodeOf(identity.sparse, identity.is_one_exchange));
    Put(bytes, kAtSeed, identity.seed);
    Put(bytes, kAtEfDecay, identity.ef_decay);
  } else if (IsLowBit(identity.mode)) {
    Put(bytes, kAtRule, WireCodeOf(identity.low_bit));
  } else {
    PutEnum(bytes, kAtRule, identity.rule);
  }
  PutEnum(bytes, kAtResidualType, identity.residual_type);
  const int flags = (identity.has_server_residual ? kServerResidual : 0) |
                    (identity.is_one_exchange ? kOneExchange : 0);
  Put(bytes, kAtFlags, static_cast<uint8_t>(flags));
  Put(bytes, kAtOp, identity.op ? static_cast<uint8_t>(*identity.op) : kNoOp);
  return encoded;
}

Result<StateIdentity> DecodeIdentity(std::span<const std::byte> bytes) {
  using kernels::DataType;
  using kernels::ScaleRule;
  constexpr size_t kBytes = IdentityBytes(CodecKind::kEf);
  CodecKind mode = CodecKind::kEf;
  const bool is_mode_known =
      bytes.size() >= kBytes &&
      GetEnum(bytes, kAtMode,
              {CodecKind::kSign, CodecKind::kEf, CodecKind::kLowBit, CodecKind::kLowBitEf,
               CodecKind::kSparse, CodecKind::kSparseEf},
              &mode);
  if (bytes.size() != IdentityBytes(mode)) {
    return Error(Code::kCorrupt, "the state is damaged: its identity has {} bytes instead of {}",
                 bytes.size(), IdentityBytes(mode));
  }
  StateIdentity identity = {
      .count = Get<uint64_t>(bytes, kAtCount),
      .epoch = Get<uint64_t>(bytes, kAtEpoch),
      .commits_since_zero = Get<uint64_t>(bytes, kAtCommits),
      .block = Get<uint32_t>(bytes, kAtBlock),
      .ranks = Get<uint32_t>(bytes, kAtRanks),
      .rank = Get<uint32_t>(bytes, kAtRank),
      .chunk_alignment = Get<uint16_t>(bytes, kAtAlignment),
      .mode = mode,
      .op = {},
  };
  const auto flags = Get<uint8_t>(bytes, kAtFlags);
  identity.has_server_residual = (flags & kServerResidual) != 0;
  identity.is_one_exchange = (flags & kOneExchange) != 0;
  bool is_known = flags <= kKnownFlags && identity.ranks > 0 && identity.rank < identity.ranks;
  is_known &= is_mode_known;
  for (size_t i = kAtZeros; i < kBytes; ++i) is_known &= bytes[i] == std::byte{0};
  is_known &= GetEnum(bytes, kAtCollective,
                      {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                       Collective::kAllToAll, Collective::kAllToAllv, Collective::kSendRecv},
                      &identity.collective);
  is_known &=
      GetEnum(bytes, kAtType, {DataType::kF32, DataType::kF16, DataType::kBf16}, &identity.type);
  if (IsSparse(identity.mode)) {
    is_known &= ReadSparse(bytes, &identity);
  } else if (IsLowBit(identity.mode)) {
    const auto low_bit = LowBitCodecOf(Get<uint8_t>(bytes, kAtRule));
    is_known &= low_bit.has_value();
    identity.low_bit = low_bit.value_or(identity.low_bit);
  } else {
    is_known &= GetEnum(bytes, kAtRule, {ScaleRule::kL2, ScaleRule::kL1}, &identity.rule);
  }
  is_known &=
      GetEnum(bytes, kAtResidualType, {DataType::kF32, DataType::kBf16}, &identity.residual_type);
  if (Get<uint8_t>(bytes, kAtOp) != kNoOp) {
    is_known &= GetEnum(bytes, kAtOp, {ReduceOp::kSum, ReduceOp::kAvg}, &identity.op.emplace());
  }
  if (!is_known) return Error(Code::kCorrupt, "the state is damaged: its identity makes no sense");
  return identity;
}

std::string DescribeDifferenceOfTensor(const StateIdentity& state, const StateIdentity& here) {
  return DifferencesOfTensor(state, here).Take();
}

std::string DescribeDifferenceOfRank(const StateIdentity& state, const StateIdentity& here) {
  return DifferencesOfTensor(state, here)
      .Compare("ranks", state.ranks, here.ranks)
      .Compare("rank", state.rank, here.rank)
      .Compare<std::string_view>("datatype", NameOf(state.type), NameOf(here.type))
      .Compare<std::string_view>("codec", NameOfCodec(state.mode, state.low_bit, state.sparse),
                                 NameOfCodec(here.mode, here.low_bit, here.sparse))
      .Compare("k", state.sparse.k, here.sparse.k)
      .Compare<std::string_view>("values", NameOfValues(state.sparse.values),
                                 NameOfValues(here.sparse.values))
      .Compare("efDecay", state.ef_decay, here.ef_decay)
      .Compare("seed", state.sparse.is_random ? state.seed : 0,
               here.sparse.is_random ? here.seed : 0)
      .Compare<std::string_view>("scaleRule", NameOfRule(state.rule), NameOfRule(here.rule))
      .Compare("block", state.block, here.block)
      .Compare<std::string_view>("residualType", NameOf(state.residual_type),
                                 NameOf(here.residual_type))
      .Compare("chunkAlignment", state.chunk_alignment, here.chunk_alignment)
      .Compare("exchanges", state.is_one_exchange ? 1 : 2, here.is_one_exchange ? 1 : 2)
      .Take();
}

}  // namespace onebit
