// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The identity section of a compressor's state (STATE.md): its configuration and its counters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "codec/message_header.h"
#include "kernels/kernels.h"

namespace onebit {

// Length of the identity. That of a sparse codec has more members.
constexpr size_t IdentityBytes(const Codec& codec) { return codec.is_sparse() ? 64 : 48; }

struct StateIdentity {
  uint64_t count = 0;  // elements of the tensor, all ranks' parts included
  uint64_t epoch = 0;
  uint64_t commits_since_zero = 0;
  uint32_t ranks = 1;
  uint32_t rank = 0;  // 0 in a state of all ranks
  uint16_t chunk_alignment = 0;
  Collective collective = Collective::kAllReduce;
  Codec codec = {.kind = CodecKind::kEf};
  kernels::DataType type = kernels::DataType::kF32;
  uint64_t seed = 0;  // like the next, of sparse packets
  float ef_decay = 1;
  kernels::DataType residual_type = kernels::DataType::kF32;  // that of the residuals in the state
  bool has_server_residual = false;
  bool is_one_exchange = false;
  uint32_t hosts = 0;  // digest of which ranks share a host, with two levels; 24 bits, never 0
  std::optional<ReduceOp> op;
};

class EncodedIdentity {
 public:
  explicit EncodedIdentity(const Codec& codec) : size_(IdentityBytes(codec)) {}

  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  size_t size() const { return size_; }
  std::byte& operator[](size_t i) { return bytes_[i]; }
  operator std::span<const std::byte>() const { return {data(), size()}; }  // it is a span

 private:
  std::array<std::byte, 64> bytes_ = {};
  size_t size_;
};

EncodedIdentity EncodeIdentity(const StateIdentity& identity);

// kCorrupt for bytes that EncodeIdentity cannot have written.
Result<StateIdentity> DecodeIdentity(std::span<const std::byte> bytes);

// Differences that keep a state from being loaded: a state of one rank into the compressor it was
// saved from, a state of all ranks into one for the same tensor. "count 100 in the state, 200 here;
// ...", or "" if there are none.
std::string DescribeDifferenceOfRank(const StateIdentity& state, const StateIdentity& here);
std::string DescribeDifferenceOfTensor(const StateIdentity& state, const StateIdentity& here);

}  // namespace onebit
