// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Offer: a payload that one thread may copy out of another one's memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace onebit::local {

// All bits zero: nothing is offered. The transitions, and the side that makes them:
//   kNone     -> kOffered   sender: the receiver may read
//   kOffered  -> kReading   receiver: begins to copy
//   kReading  -> kNone      receiver: has copied it all
//   kOffered  -> kNone      sender: takes it back before the receiver began
//   kReading  -> kStopping  sender: wants it back while the receiver reads
//   kStopping -> kNone      receiver: has stopped, or was done anyway
// Every change of state hands `payload_`, or the memory behind it, to the other side: stores are
// releases and loads are acquires.
class Offer {
 public:
  // -- sender
  void Set(const void* payload, size_t bytes);
  // True once nobody reads the payload and nobody will; false while the receiver finishes a piece,
  // which it then tells by `Pull`: call again.
  bool Recall();

  // -- receiver
  enum class Pulled {
    kAll,
    kRecalled,
    kRecalledWhileReading,  // the sender waits: ring its doorbell
  };
  Pulled Pull(void* target, size_t bytes);

 private:
  enum class State : uint32_t { kNone = 0, kOffered, kReading, kStopping };
  static constexpr size_t kPieceBytes = 256u << 10;  // copied before a recall is looked for

  std::atomic<State> state_;
  size_t bytes_;
  const void* payload_;
};

}  // namespace onebit::local
