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
  kAtHosts = 45,
  // Only sparse codecs have these:
  kAtSeed = 48,
  kAtEfDecay = 56,
  kAtSparseZeros = 60,
};
enum Flag : uint8_t { kServerResidual = 1, kOneExchange = 2, kKnownFlags = 3 };
constexpr size_t kHostsBytes = 3;
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

Differences DifferencesOfTensor(const StateIdentity& state, const StateIdentity& here) {
  Differences differences;
  differences
      .Compare<std::string_view>("collective", NameOf(state.collective), NameOf(here.collective))
      .Compare("elements", state.count, here.count)
      .Compare<std::string_view>("mode", state.codec.has_feedback() ? "ef" : "plain",
                                 here.codec.has_feedback() ? "ef" : "plain")
      .Compare("serverResidual", int{state.has_server_residual}, int{here.has_server_residual});
  return differences;
}

}  // namespace

EncodedIdentity EncodeIdentity(const StateIdentity& identity) {
  EncodedIdentity encoded(identity.codec);
  std::byte* bytes = encoded.data();
  const CodecOnWire codec = ToWire(identity.codec, identity.is_one_exchange);
  Put(bytes, kAtCount, identity.count);
  Put(bytes, kAtEpoch, identity.epoch);
  Put(bytes, kAtCommits, identity.commits_since_zero);
  Put(bytes, kAtBlock, codec.block);
  Put(bytes, kAtRanks, identity.ranks);
  Put(bytes, kAtRank, identity.rank);
  Put(bytes, kAtAlignment, identity.chunk_alignment);
  PutEnum(bytes, kAtCollective, identity.collective);
  Put(bytes, kAtMode, codec.kind);
  PutEnum(bytes, kAtType, identity.type);
  Put(bytes, kAtRule, codec.rule);
  if (identity.codec.is_sparse()) {
    Put(bytes, kAtSeed, identity.seed);
    Put(bytes, kAtEfDecay, identity.ef_decay);
  }
  PutEnum(bytes, kAtResidualType, identity.residual_type);
  const int flags = (identity.has_server_residual ? kServerResidual : 0) |
                    (identity.is_one_exchange ? kOneExchange : 0);
  Put(bytes, kAtFlags, static_cast<uint8_t>(flags));
  Put(bytes, kAtOp, identity.op ? static_cast<uint8_t>(*identity.op) : kNoOp);
  std::memcpy(bytes + kAtHosts, &identity.hosts, kHostsBytes);
  return encoded;
}

Result<StateIdentity> DecodeIdentity(std::span<const std::byte> bytes) {
  using kernels::DataType;
  // A sparse codec's identity is longer than the others, whose mode is at the same place.
  constexpr size_t kBytes = IdentityBytes({});
  const auto kind =
      bytes.size() < kBytes ? CodecKind::kEf : static_cast<CodecKind>(Get<uint8_t>(bytes, kAtMode));
  if (const size_t expected = IdentityBytes({.kind = kind}); bytes.size() != expected) {
    return Error(Code::kCorrupt, "the state is damaged: its identity has {} bytes instead of {}",
                 bytes.size(), expected);
  }
  StateIdentity identity = {
      .count = Get<uint64_t>(bytes, kAtCount),
      .epoch = Get<uint64_t>(bytes, kAtEpoch),
      .commits_since_zero = Get<uint64_t>(bytes, kAtCommits),
      .ranks = Get<uint32_t>(bytes, kAtRanks),
      .rank = Get<uint32_t>(bytes, kAtRank),
      .chunk_alignment = Get<uint16_t>(bytes, kAtAlignment),
      .op = {},
  };
  const auto flags = Get<uint8_t>(bytes, kAtFlags);
  identity.has_server_residual = (flags & kServerResidual) != 0;
  identity.is_one_exchange = (flags & kOneExchange) != 0;
  const char* wrong = nullptr;  // the first field that no identity can have
  const auto check = [&wrong](const char* field, bool is_possible) {
    if (!is_possible && wrong == nullptr) wrong = field;
  };
  check("flags", flags <= kKnownFlags);
  check("rank", identity.rank < identity.ranks);
  const auto codec = FromWire({.kind = Get<uint8_t>(bytes, kAtMode),
                               .rule = Get<uint8_t>(bytes, kAtRule),
                               .block = Get<uint32_t>(bytes, kAtBlock)},
                              identity.is_one_exchange);
  check("codec", codec.has_value() && !codec->is_dense());
  identity.codec = codec.value_or(Codec{});
  std::memcpy(&identity.hosts, bytes.data() + kAtHosts, kHostsBytes);
  check("collective",
        GetEnum(bytes, kAtCollective,
                {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                 Collective::kAllToAll, Collective::kAllToAllv, Collective::kSendRecv},
                &identity.collective));
  // With two levels some ranks share a host, and others do not.
  check("hosts", identity.hosts == 0 || (SumsInsideHosts(identity.collective) &&
                                         !identity.is_one_exchange && identity.ranks > 2));
  check("datatype",
        GetEnum(bytes, kAtType, {DataType::kF32, DataType::kF16, DataType::kBf16}, &identity.type));
  if (identity.codec.is_sparse()) {
    identity.seed = Get<uint64_t>(bytes, kAtSeed);
    identity.ef_decay = Get<float>(bytes, kAtEfDecay);
    check("efDecay", identity.ef_decay >= 0 && identity.ef_decay <= 1);
    check("padding", Get<uint32_t>(bytes, kAtSparseZeros) == 0);
  }
  check("residualType", GetEnum(bytes, kAtResidualType, {DataType::kF32, DataType::kBf16},
                                &identity.residual_type));
  if (Get<uint8_t>(bytes, kAtOp) != kNoOp) {
    check("op", GetEnum(bytes, kAtOp, {ReduceOp::kSum, ReduceOp::kAvg}, &identity.op.emplace()));
  }
  if (wrong != nullptr) {
    return Error(Code::kCorrupt, "the state is damaged: the {} in its identity is impossible",
                 wrong);
  }
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
      .Compare<std::string_view>("codec", state.codec.Name(), here.codec.Name())
      .Compare("k", state.codec.sparse.k, here.codec.sparse.k)
      .Compare<std::string_view>("values", NameOf(state.codec.sparse.values),
                                 NameOf(here.codec.sparse.values))
      .Compare("efDecay", state.ef_decay, here.ef_decay)
      .Compare("seed", state.codec.sparse.is_random ? state.seed : 0,
               here.codec.sparse.is_random ? here.seed : 0)
      .Compare<std::string_view>("scaleRule", NameOf(state.codec.rule), NameOf(here.codec.rule))
      .Compare("block", state.codec.block, here.codec.block)
      .Compare<std::string_view>("residualType", NameOf(state.residual_type),
                                 NameOf(here.residual_type))
      .Compare("chunkAlignment", state.chunk_alignment, here.chunk_alignment)
      .Compare("levels", state.hosts == 0 ? 1 : 2, here.hosts == 0 ? 1 : 2)
      .Compare("hosts of ranks (ONEBIT_HOST, ONEBIT_HOST_RANKS) as digest", state.hosts, here.hosts)
      .Compare("exchanges", state.is_one_exchange ? 1 : 2, here.is_one_exchange ? 1 : 2)
      .Take();
}

}  // namespace onebit
