// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ONEBIT_NCCL_RULES: which NCCL calls are compressed, and how.
//
//   rules      = "off" | "default" | rule { ";" rule }
//   rule       = conditions ":" codec { "," option }
//   conditions = "*" | condition { "," condition }
//   condition  = "comm=" NAME | "op=" OPERATION | "reduce=" REDUCTION | "type=" TYPE
//              | "bytes>=" SIZE | "bytes<" SIZE | "ranks>=" N
//   codec      = "off" | a name of kCodecs
//   option     = "ef" | "plain" | "block=" N | "start=" N
//
// The first rule whose conditions all hold decides. A NAME may end in "*". OPERATION is allreduce,
// reducescatter, allgather, alltoall or sendrecv; a rule without one is for the first two only, but
// for all of them if its codec is off.
// REDUCTION is sum or avg; TYPE float32, bfloat16 or float16. A SIZE is that of the whole tensor in
// bytes, with K, M or G for its powers of 1024. "start" counts the calls in full precision that
// each tensor has first. Reductions have error feedback and start=20 unless a rule says otherwise;
// other operations are plain from their first call on, and sends and receives can be nothing else.
#pragma once

#include <onebit/onebit.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/nccl_preload/call_facts.h"

namespace onebit::preload {

// How the calls of a rule travel: by a codec, or as NCCL sends them.
struct CodecChoice {
  std::string_view name;
  int32_t codec;  // onebitCodec_t, or kOff
  // Elements of a block: a multiple of a number up to another, and what is wrong with others. The
  // compressor would refuse them, at a call in the middle of a training.
  uint32_t multiple = 32;
  uint32_t most = 65536;
  std::string_view problem = "is not a multiple of 32 up to 65536, as this codec needs";
};
inline constexpr int32_t kOff = -1;
inline constexpr CodecChoice kCodecs[] = {
    {"off", kOff},
    {"fp4", onebitCodecFp4},
    {"int8", onebitCodecInt8},
    {"int2", onebitCodecInt2},
    {"sign", onebitCodecSign, 64, 1u << 30,
     "is not a multiple of 64 up to 1073741824, as this codec needs"},
    {"bf16", onebitCodecBf16, 1, 0, "has no meaning for bf16, whose elements have no scale"}};

struct Compression {
  int32_t codec = kOff;
  bool has_feedback = true;
  uint32_t block = 0;  // 0: the codec's default
  uint32_t start = 20;
  bool has_one_level = false;  // every rank's packet leaves its host

  friend auto operator<=>(const Compression&, const Compression&) = default;
};

struct Rule {
  std::optional<std::string> comm;     // with its "*"
  std::optional<Operation> operation;  // kSend stands for kRecv, too
  std::optional<int> reduction;
  std::optional<DataType> type;
  uint64_t least_bytes = 0;
  uint64_t bytes_below = UINT64_MAX;
  int least_ranks = 0;
  Compression compression;

  bool IsFor(const CommFacts& comm_facts, Operation called) const;
  bool Matches(const CommFacts& comm_facts, const CallFacts& call) const;
};

// All rules of a process; equal on all ranks of a job, which CommInit checks.
struct Rules {
  std::vector<Rule> rules;
  // True for "default": its rule holds for one communicator only, that of all ranks, and for none
  // once another one has moved floats (DefaultScope).
  bool is_default = false;

  bool is_off() const { return rules.empty(); }
  // True if a rule compresses calls of the operation on the communicator.
  bool MaySelect(const CommFacts& comm, Operation operation) const;
};

// Parses the value of ONEBIT_NCCL_RULES. An error is a text that says which rule is wrong, and what
// there is instead; `rules` is then off.
std::optional<std::string> ParseRules(std::string_view text, Rules* rules);

// Parses the part of a rule after its colon, a codec with its options, for calls of an operation.
std::optional<std::string> ParseCompression(std::string_view text, Operation operation,
                                            Compression* compression);

// Returns the compression of a call; kOff if no rule matches, or if it cannot be compressed: one
// rank, another operation, reduction or type, or no elements. What the program has `asked` for is
// returned instead of what a rule says, also if none matches, but not where a rule says off, and
// not without rules.
Compression Choose(const Rules& rules, const CommFacts& comm, const CallFacts& call,
                   const std::optional<Compression>& asked = std::nullopt);

}  // namespace onebit::preload
