// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A fault that strikes one message of one rank.
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
    kDuplicate,    // the message arrives twice
    kReorder,      // it arrives after this rank's next message to the same peer
    kDrop,         // it never arrives, though the sender of an eager payload sees it complete
    kDelay,        // it cannot be sent for `delay_ms`
    kRefuse,       // the transport fails to send it, with onebitSystemError
    kDisconnect,   // the rank sends and receives nothing from here on, and nobody is told
    kPeerError,    // the same, but the transport reports it to those who wait for the rank
    kKill,         // SIGKILL of this process
    kStop,         // SIGSTOP of this process
  };
  Kind kind = Kind::kNone;
  int rank = 0;  // sender of the message
  uint64_t message =
      0;  // how many this rank sends before; only messages that could be struck count
  size_t bit = 0;
  uint64_t delay_ms = 0;
  int exchange = 0;       // only messages of exchange 1 or 2 count; 0: of both
  int comm = 0;           // in settings: index of the communicator in the process
  bool is_after = false;  // strikes after the message was handed over: kKill and kStop
};

// Returns a name such as "lost message".
std::string_view NameOf(Fault::Kind kind);
std::ostream& operator<<(std::ostream& out, Fault::Kind kind);

// True if the fault can strike only messages with a payload.
bool NeedsPayload(Fault::Kind kind);
// True if the rank is silent from the struck message on.
bool CutsOff(Fault::Kind kind);

// Parses the words of a setting: "kill rank=2 exchange=1 message=5 after=1". Kinds are flip-header,
// flip-payload, version, cut, duplicate, reorder, drop, delay, refuse, disconnect, peer-error, kill
// and stop; other words are bit, delay_ms and comm. Returns nothing if the text is no fault.
std::optional<Fault> ParseFault(std::string_view text);

}  // namespace onebit::testing
