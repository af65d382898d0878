// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A fault, the call that it strikes, and its expected consequences.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onebit/onebit.h"
#include "tests/support/fault.h"

namespace onebit::testing {

inline constexpr int kCaseRanks = 3;
// Rank 1 is struck, because it neither serves the control channel nor is the last rank.
inline constexpr int kStruckRank = 1;

// The kind of the call.
struct CallKind {
  const char* name;
  std::optional<onebitMode_t> mode;  // none: dense
  bool is_one_exchange = false;
};
inline constexpr CallKind kCallKinds[] = {
    {.name = "dense", .mode = std::nullopt},
    {.name = "sign", .mode = onebitModePlain},
    {.name = "sign, one exchange", .mode = onebitModePlain, .is_one_exchange = true},
    {.name = "ef", .mode = onebitModeEf},
    {.name = "ef, one exchange", .mode = onebitModeEf, .is_one_exchange = true},
};

// The size of the call's messages. In the shortest tensor the struck rank serves no elements.
enum class MessageSize { kHeaderOnly, kEager, kLarge };
inline constexpr MessageSize kMessageSizes[] = {MessageSize::kHeaderOnly, MessageSize::kEager,
                                                MessageSize::kLarge};
std::string_view NameOf(MessageSize size);
size_t CountOf(const CallKind& kind, MessageSize size);

// The struck message among those of the rank.
struct Place {
  const char* name;
  int exchange;
  uint64_t message;  // of the exchange
};
inline constexpr Place kPlaces[] = {{"first of exchange 1", 1, 0},
                                    {"last of exchange 1", 1, kCaseRanks - 2},
                                    {"first of exchange 2", 2, 0},
                                    {"last of exchange 2", 2, kCaseRanks - 2}};

struct FaultCase {
  std::string transport;  // "local", "socket" or "ucx"
  CallKind call;
  MessageSize size;
  Place place;
  Fault::Kind kind;

  std::string Text() const;
  // False for combinations that do not exist: a second exchange of a call with one, or a payload of
  // a message without one.
  bool exists() const;
  Fault fault() const;
};

// The expected consequences of a fault.
struct Expectation {
  // Every error names the cause in one of these ways; empty if there must be no error.
  std::vector<std::string_view> causes;
  // True if every error names the struck rank; otherwise it may name the receiver of its message.
  bool is_sender_named = true;
  bool may_be_harmless = false;  // every call may succeed as well
  bool is_unseen = false;        // the damage reaches the output
  uint64_t timeout_ms = 20'000;  // of a collective without progress
};
Expectation ExpectationOf(const FaultCase& one);

// Faults of messages, one row of the table each.
inline constexpr Fault::Kind kMessageFaults[] = {
    Fault::Kind::kDelay,      Fault::Kind::kReorder,     Fault::Kind::kDuplicate,
    Fault::Kind::kDrop,       Fault::Kind::kFlipHeader,  Fault::Kind::kSetVersion,
    Fault::Kind::kCutPayload, Fault::Kind::kFlipPayload, Fault::Kind::kRefuse,
    Fault::Kind::kPeerError,  Fault::Kind::kDisconnect};

// All cases of a transport.
std::vector<FaultCase> AllCases(const std::string& transport);

}  // namespace onebit::testing
