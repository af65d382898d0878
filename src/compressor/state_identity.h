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

inline constexpr size_t kIdentityBytes = 48;

struct StateIdentity {
  uint64_t count = 0;  // elements of the tensor, all ranks' parts included
  uint64_t epoch = 0;
  uint64_t commits_since_zero = 0;
  uint32_t block = 0;
  uint32_t ranks = 1;
  uint32_t rank = 0;  // 0 in a state of all ranks
  uint16_t chunk_alignment = 0;
  Collective collective = Collective::kAllReduce;
  CodecKind mode = CodecKind::kEf;
  kernels::DataType type = kernels::DataType::kF32;
  kernels::ScaleRule rule = kernels::ScaleRule::kL2;          // of signs
  kernels::LowBitCodec low_bit = kernels::LowBitCodec::kFp4;  // of low-bit codes
  kernels::DataType residual_type = kernels::DataType::kF32;  // that of the residuals in the state
  bool has_server_residual = false;
  bool is_one_exchange = false;
  std::optional<ReduceOp> op;
};

std::array<std::byte, kIdentityBytes> EncodeIdentity(const StateIdentity& identity);

// kCorrupt for bytes that EncodeIdentity cannot have written.
Result<StateIdentity> DecodeIdentity(std::span<const std::byte> bytes);

// Differences that keep a state from being loaded: a state of one rank into the compressor it was
// saved from, a state of all ranks into one for the same tensor. "count 100 in the state, 200 here;
// ...", or "" if there are none.
std::string DescribeDifferenceOfRank(const StateIdentity& state, const StateIdentity& here);
std::string DescribeDifferenceOfTensor(const StateIdentity& state, const StateIdentity& here);

}  // namespace onebit
