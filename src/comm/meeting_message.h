// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Messages between ranks that meet to make a communicator from one that may have failed. A visitor
// is the client of its connection, a host the server.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "comm/byte_stream.h"
#include "comm/secret.h"

namespace onebit {

// From a visitor. The first message is Visit.
struct Visit {
  uint32_t rank = 0;
  bool is_question = false;   // wants to know if the host lives, and will not stay
  bool needs_quorum = false;  // ONEBIT_QUORUM of the rank
  uint32_t patience_ms = 0;   // how long it waits for ranks that live
  std::array<unsigned char, kKeyBytes> wish{};  // differs for different sets of wanted members
};
struct StillHere {};
struct HasJoined {};  // from either side: the end of the connection is no failure any more
using VisitorMessage = std::variant<Visit, StillHere, HasJoined>;

// From a host.
struct HostState {
  bool is_away = false;        // it lives, but its rank has not made the call yet
  bool is_other_wish = false;  // its rank wants another set of members than the visitor's
  uint32_t missing = 0;
  std::vector<uint32_t> some_missing;  // the first of them
};
struct MoveTo {
  uint32_t host = 0;
};
struct GoOn {
  std::vector<uint32_t> members;  // by new rank
  uint16_t port = 0;              // of the host, where they join
  JobKey key{};
};
struct Refusal {
  // kWentOn: others did, without the visitor. kTooFew: those who met do not go on.
  enum class Cause : uint8_t { kWentOn = 0, kTooFew = 1, kMissing = 2, kFailed = 3 };
  Cause cause = Cause::kWentOn;
  uint32_t went_on = 0;  // how many, with kWentOn
  std::string text;
};
using HostMessage = std::variant<HostState, MoveTo, GoOn, Refusal, HasJoined>;

Bytes Encode(const VisitorMessage& message);
Bytes Encode(const HostMessage& message);
// Fail with kCorrupt for anything that Encode does not write.
Result<VisitorMessage> DecodeVisitorMessage(std::span<const std::byte> bytes);
Result<HostMessage> DecodeHostMessage(std::span<const std::byte> bytes);

// Upper bounds of encoded messages.
inline constexpr size_t kMostVisitorMessageBytes = 64;
inline constexpr size_t kMostRefusalText = 1024;
constexpr size_t MostHostMessageBytes(size_t ranks) { return 4 * ranks + kMostRefusalText + 64; }

}  // namespace onebit
