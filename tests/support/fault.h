// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What goes wrong with one message of one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

namespace onebit::testing {

struct Fault {
  enum class Kind {
    kNone,
    kFlipHeader,   // bit `bit` of the header
    kFlipPayload,  // bit `bit` of the payload, modulo its size
    kSetVersion,   // the format version becomes `bit`
    kCutPayload,   // the last byte is missing
    kDuplicate,    // the message comes twice
    kReorder,      // it comes after the next message of this rank to the same peer
    kDrop,         // it never comes, though the sender is told it went
    kDelay,        // it cannot be sent for `delay_ms`
    kRefuse,       // isend fails with onebitSystemError
    kDisconnect,   // from here on the rank sends nothing and hears nothing, and nobody is told
    kPeerError,    // the same, and the transport tells those who wait for the rank
    kKill,         // SIGKILL of this process
    kStop,         // SIGSTOP of this process
  };
  Kind kind = Kind::kNone;
  int rank = 0;  // whose message
  uint64_t message =
      0;  // how many this rank sends before; only messages that could be struck count
  size_t bit = 0;
  uint64_t delay_ms = 0;
  int exchange = 0;       // messages of this exchange (1 or 2) count; 0: of any
  int comm = 0;           // of a setting: of the communicators that the process has had
  bool is_after = false;  // strikes when the message has been handed over: kKill and kStop
};

// "lost message"
std::string_view NameOf(Fault::Kind kind);
std::ostream& operator<<(std::ostream& out, Fault::Kind kind);

// Whether only messages that have a payload can be struck.
bool NeedsPayload(Fault::Kind kind);
// Whether the rank is silent from the struck message on.
bool CutsOff(Fault::Kind kind);

// "kill rank=2 exchange=1 message=5 after=1": the words of a setting. Kinds are called
// flip-header, flip-payload, version, cut, duplicate, reorder, drop, delay, refuse, disconnect,
// peer-error, kill and stop; further words are bit, delay_ms and comm. Nothing if it is no fault.
std::optional<Fault> ParseFault(std::string_view text);

}  // namespace onebit::testing
