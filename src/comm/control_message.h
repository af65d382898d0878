// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What is said on the control connections once both sides have proved who they are. A rank is the
// client of its connection, the star in the middle the server.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "comm/byte_stream.h"
#include "comm/control.h"

namespace onebit {

inline constexpr uint32_t kMaxRanks = 65'536;

// From a rank to the star.
struct Join {
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint32_t heartbeat_ms = 0;
  uint32_t loss_timeout_ms = 0;
  std::string process;  // "host:pid", for texts
};
struct Gather {  // of all ranks; the number counts the gathers of a communicator
  uint64_t number = 0;
  Bytes content;
};
struct Report {
  std::optional<uint32_t> lost;  // the rank that is gone, as this one sees; none: it failed itself
  Status cause;
};
struct WhoIsMissing {};  // in the gather that is under way; StarAlive answers
struct Leave {};         // the last word: what follows is no failure
struct RankAlive {};
using RankMessage = std::variant<Join, Gather, Report, Calls, WhoIsMissing, Leave, RankAlive>;

// From the star to a rank.
struct Joined {
  uint64_t comm_id = 0;
  std::string process;  // of the star
};
struct Gathered {
  uint64_t number = 0;
  std::vector<Bytes> contents;  // by rank
};
struct Failed {
  Failure first;
};
struct StarAlive {  // with who is missing in the gather that is under way
  uint32_t missing = 0;
  std::vector<uint32_t> some_missing;  // the first of them
};
struct MayEnd {};  // from now on the end of the star is no failure
using StarMessage = std::variant<Joined, Gathered, Failed, StarAlive, MayEnd>;

Bytes Encode(const RankMessage& message);
Bytes Encode(const StarMessage& message);
// kCorrupt for whatever Encode does not write.
Result<RankMessage> DecodeRankMessage(std::span<const std::byte> bytes);
Result<StarMessage> DecodeStarMessage(std::span<const std::byte> bytes);

// What a record takes in Calls, which hold at most kMaxContentBytes of them.
inline size_t EncodedBytes(const CallRecord& record) {
  return 2 * sizeof(uint32_t) + ShortText(record).size();
}

// Upper bounds of encoded messages.
inline constexpr size_t kMostRankMessageBytes = kMaxContentBytes + 64;
constexpr size_t MostStarMessageBytes(uint32_t ranks) {
  return ranks * (kMaxContentBytes + 8) + 1024;
}

}  // namespace onebit
