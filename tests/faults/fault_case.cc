// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/fault_case.h"

#include "base/format.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

constexpr uint64_t kDelayMs = 100;
constexpr size_t kHeaderBit = 200;
constexpr size_t kPayloadBit = 77;
constexpr size_t kOtherVersion = 9;

}  // namespace

std::string_view NameOf(MessageSize size) {
  switch (size) {
    case MessageSize::kHeaderOnly:
      return "header only";
    case MessageSize::kEager:
      return "eager payload";
    case MessageSize::kLarge:
      return "large payload";
  }
  return "";
}

// Large means: dense messages that `ucx` offers before it sends them, and packets that it sends
// early.
size_t CountOf(const CallKind& kind, MessageSize size) {
  switch (size) {
    case MessageSize::kHeaderOnly:
      return kind.is_one_exchange ? 0 : 64;
    case MessageSize::kEager:
      return 500;
    case MessageSize::kLarge:
      return kind.mode ? 100'000 : 750'000;
  }
  return 0;
}

std::string FaultCase::Text() const {
  return Format("{} over {}: {}, {}, {}", NameOf(kind), transport, call.name, NameOf(size),
                place.name);
}

bool FaultCase::exists() const {
  if (call.is_one_exchange && place.exchange == 2) return false;
  return size != MessageSize::kHeaderOnly || !NeedsPayload(kind);
}

Fault FaultCase::fault() const {
  return {.kind = kind,
          .rank = kStruckRank,
          .message = place.message,
          .bit = kind == Fault::Kind::kSetVersion    ? kOtherVersion
                 : kind == Fault::Kind::kFlipPayload ? kPayloadBit
                                                     : kHeaderBit,
          .delay_ms = kDelayMs,
          .exchange = place.exchange};
}

Expectation ExpectationOf(const FaultCase& one) {
  switch (one.kind) {
    case Fault::Kind::kNone:
    case Fault::Kind::kDelay:
      return {};
    case Fault::Kind::kReorder:
      // A call does not end before a large payload has been read, so that no message of the next
      // call overtakes the last one.
      return {.causes = {"call number"},
              .may_be_harmless = one.place.exchange == 1 || one.size == MessageSize::kLarge};
    case Fault::Kind::kDuplicate:
      return {.causes = {"twice or unasked", "call number"}};
    case Fault::Kind::kDrop:
      // The last message to a rank: the next call's message arrives in its stead.
      return {.causes = {"no progress for", "call number"},
              .is_sender_named = false,
              .timeout_ms = ShortTimeoutMs()};
    case Fault::Kind::kDisconnect:
      return {.causes = {"no progress for"}, .timeout_ms = ShortTimeoutMs()};
    case Fault::Kind::kFlipHeader:
      return {.causes = {"fails its check"}};
    case Fault::Kind::kSetVersion:
      return {.causes = {"packet has version 9, this library reads 1"}};
    case Fault::Kind::kCutPayload:
      return {.causes = {"payload bytes"}};
    case Fault::Kind::kFlipPayload:
      // Dense payloads carry no checksum: lower layers guard them.
      if (!one.call.mode) return {.is_unseen = true};
      return {.causes = {"damaged in transit"}};
    case Fault::Kind::kRefuse:
      return {.causes = {"failed to send to"}};
    case Fault::Kind::kPeerError:
      return {.causes = {"its connection was cut"}};
    case Fault::Kind::kKill:
    case Fault::Kind::kStop:
      return {.causes = {"is gone"}};  // only for processes, which these are not
  }
  return {};
}

std::vector<FaultCase> AllCases(const std::string& transport) {
  std::vector<FaultCase> cases;
  for (const Fault::Kind kind : kMessageFaults) {
    for (const CallKind& call : kCallKinds) {
      for (const MessageSize size : kMessageSizes) {
        for (const Place& place : kPlaces) {
          const FaultCase one{transport, call, size, place, kind};
          if (one.exists()) cases.push_back(one);
        }
      }
    }
  }
  return cases;
}

}  // namespace onebit::testing
