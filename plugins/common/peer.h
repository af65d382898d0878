// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Peer: this rank's view of another rank, or of itself.
#pragma once

#include <onebit/transport.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "plugins/common/control_queue.h"
#include "plugins/common/frame_transport.h"
#include "plugins/common/message_request.h"
#include "plugins/common/send_stream.h"
#include "plugins/common/wire.h"

namespace onebit::plugin {

// A place of the window for a message from the peer.
enum class SlotState : uint32_t {
  kFree,
  kArrived,         // the header is here, and what has come of its payload; no receive has taken it
  kTaken,           // its header is with a receive
  kTakenLost,       // as before, and the sender has taken the payload back
  kWithdrawn,       // the sender took it back before a receive did
  kWithdrawnEarly,  // as before, but the message itself has not even arrived
};

struct Slot {
  SlotState state;
  uint32_t header_bytes;
  uint64_t number;
  uint64_t payload_bytes;
  uint64_t moved_bytes;  // of the payload, that lie in the memory of the slot
  Request* taker;
  std::byte header[ONEBIT_TRANSPORT_HEADER_BYTES];
};

struct Peer {
  Link* link = nullptr;  // the frames's
  ControlQueue controls;
  bool is_flushing = false;  // listed among those whose controls wait

  // Its life.
  bool has_hello = false;
  bool has_bye = false;      // it closed or aborted its endpoint
  bool was_aborted = false;  // the latter
  uint64_t bye_number = 0;   // messages it had sent by then
  bool is_reported = false;  // peerError was called
  bool is_gone() const { return has_bye || link->is_lost(); }

  // `released` was told.
  void HasBeenTold(uint64_t now_known) {
    if (told < awaited) answer_frame = link->taken;
    told = now_known;
    untold_bytes = 0;
  }

  // The peer's sends wait for nothing more of this rank: it was told of what is released, and the
  // frame transport has sent that. Else it may lie with the frame transport until this rank makes
  // progress again.
  bool HasItsAnswers() const {
    return is_gone() || (told >= std::min(awaited, released) && link->sent >= answer_frame);
  }
  static constexpr uint64_t kNoFrame = UINT64_MAX;
  uint64_t watched_frame = kNoFrame;  // a caller waits until the link has sent so many

  // Messages to it.
  uint64_t sent = 0;
  uint64_t released_by_it = 0;                // it keeps slots for numbers below this plus kWindow
  std::array<Request*, kWindow> offers = {};  // by slot, null when settled
  Stream stream;
  uint64_t pending_bytes = 0;  // of payloads, not eager, whose sends are not done

  // Messages from it.
  std::unique_ptr<Slot[]> slots;
  std::unique_ptr<std::byte[]> slot_memory;  // of each slot, for an eager or early payload
  uint64_t seen = 0;                         // numbers below have arrived
  uint64_t received = 0;                     // numbers below were taken by a receive, or skipped
  uint64_t released = 0;                     // numbers below have a free slot
  uint64_t told = 0;                         // `released` as the peer knows it
  uint64_t untold_bytes = 0;                 // of payloads released since
  uint64_t awaited = 0;                      // a send of the peer ends when it is told of this
  uint64_t answer_frame = 0;  // frames that had been taken when it was last told of such
  Request* posted = nullptr;  // the receive that waits for a header

  Slot& slot(uint64_t number) { return slots[number % kWindow]; }
};

}  // namespace onebit::plugin
