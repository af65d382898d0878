// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages of authenticated control connections. A rank is the client of its connection, the hub is
// the server.
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

// From a rank to the hub.
struct Join {
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint32_t heartbeat_ms = 0;
  uint32_t loss_timeout_ms = 0;
  std::string process;  // "host:pid", for texts
  std::string job;      // FindJobWord
};
struct Gather {  // the number counts the gathers of a communicator
  uint64_t number = 0;
  Bytes content;
};
struct Report {
  std::optional<uint32_t> lost;  // the rank whose loss is reported; none: the sender failed
  Status cause;
};
struct WhoIsMissing {};  // asks about the current gather; HubAlive answers
struct Leave {};         // the last message: the end of the connection is no failure
struct RankAlive {};
using RankMessage =
    std::variant<Join, Gather, Report, RecordBatch, WhoIsMissing, Leave, RankAlive, Waits>;

// From the hub to a rank.
struct Joined {
  uint64_t comm_id = 0;
  std::string process;  // of the hub
};
// Instead of Joined: this rank may not join, or not here.
struct Refused {
  // The server waits for the ranks of another job, and goes on.
  bool is_other_job = false;
  Status cause;
};
struct Gathered {
  uint64_t number = 0;
  std::vector<Bytes> contents;  // by rank
};
struct Failed {
  Failure first;
};
struct HubAlive {  // with the ranks missing in the current gather
  uint32_t missing = 0;
  std::vector<uint32_t> some_missing;  // the first missing ranks
  std::string note;                    // why, as far as the hub knows; may be empty
};
struct MayEnd {};  // the end of the hub is no failure any more
using HubMessage = std::variant<Joined, Gathered, Failed, HubAlive, MayEnd, Refused>;

Bytes Encode(const RankMessage& message);
Bytes Encode(const HubMessage& message);
// Fail with kCorrupt for anything that Encode does not write.
Result<RankMessage> DecodeRankMessage(std::span<const std::byte> bytes);
Result<HubMessage> DecodeHubMessage(std::span<const std::byte> bytes);

// Bytes of a record in Calls, whose records take at most kMaxContentBytes.
inline size_t EncodedBytes(const CallRecord& record) {
  return 2 * sizeof(uint32_t) + ShortText(record).size();
}

// Upper bounds of encoded messages.
inline constexpr size_t kMostRankMessageBytes = kMaxContentBytes + 64;
constexpr size_t MostHubMessageBytes(uint32_t ranks) {
  return ranks * (kMaxContentBytes + 8) + 1024;
}

}  // namespace onebit
