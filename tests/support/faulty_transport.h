// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport `local` with one fault at a chosen message: bits flipped, payloads cut, messages sent
// twice, lost, late or refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <ostream>

#include "onebit/transport.h"
#include "transport/transport.h"

namespace onebit::testing {

struct Fault {
  enum class Kind {
    kNone,
    kFlipHeader,   // bit `bit` of the header
    kFlipPayload,  // bit `bit` of the payload, modulo its size
    kSetVersion,   // the format version becomes `bit`
    kCutPayload,   // the last byte is missing
    kDuplicate,    // the message comes twice
    kDrop,         // it never comes, though the sender is told it went
    kDelay,        // it cannot be sent for `delay_ms`
    kRefuse,       // isend fails with onebitSystemError
  };
  Kind kind = Kind::kNone;
  int rank = 0;          // whose message
  uint64_t message = 0;  // how many this rank sends before; faults of payloads count only messages
                         // that have one
  size_t bit = 0;
  uint64_t delay_ms = 0;
};
std::ostream& operator<<(std::ostream& out, Fault::Kind kind);

// Owns a started transport of its own. Groups on it must be gone before it goes.
class FaultyTransport {
 public:
  FaultyTransport();
  // Expects that all endpoints were closed.
  ~FaultyTransport();
  FaultyTransport(const FaultyTransport&) = delete;
  FaultyTransport& operator=(const FaultyTransport&) = delete;

  const Transport& transport() const { return transport_; }

  // Counts messages from now on and strikes once. No call is running.
  void Arm(const Fault& fault);
  bool has_struck() const { return struck_peer_.load() >= 0; }
  // To whom the faulty message went; -1: none yet.
  int struck_peer() const { return struck_peer_.load(); }

  class Endpoint;  // one rank's; in the .cc

 private:
  struct Counts {
    std::atomic<uint64_t> messages{0};
    std::atomic<uint64_t> payloads{0};
  };

  Fault fault_;
  Counts counts_;  // of fault_.rank since Arm
  std::atomic<int> struck_peer_{-1};
  void* inner_context_ = nullptr;
  Transport transport_;

  friend struct FaultyFunctions;
};

}  // namespace onebit::testing
