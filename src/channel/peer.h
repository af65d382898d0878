// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Peer: this rank's view of another rank, or of itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "channel/control_queue.h"
#include "channel/message_request.h"
#include "channel/send_stream.h"
#include "channel/wire.h"

namespace onebit::channel {

// A slot of the window for one message from the peer.
enum class SlotState : uint32_t {
  kFree,
  kArrived,         // holds the header and the payload so far; no receive has taken it
  kTaken,           // a receive has its header
  kTakenLost,       // as kTaken, and the sender has taken the payload back
  kWithdrawn,       // the sender took it back before a receive took it
  kWithdrawnEarly,  // as kWithdrawn, but the message itself has not arrived yet
};

struct Slot {
  SlotState state;
  uint32_t header_bytes;
  uint64_t number;
  uint64_t payload_bytes;
  uint64_t moved_bytes;  // payload bytes in the slot's memory
  Request* taker;
  std::byte* memory;  // for an eager or early payload; null while the slot is free
  std::byte header[kMessageHeaderBytes];
};

struct Peer {
  const onebitTransportLink* link = nullptr;  // owned by the frame transport
  ControlQueue controls;
  bool is_flushing = false;  // listed among the peers with waiting controls

  // Start and end of the peer.
  bool has_hello = false;
  bool has_bye = false;      // it closed or aborted its end
  bool was_aborted = false;  // its end was an abort
  uint64_t bye_number = 0;   // messages it had sent by then
  bool is_reported = false;  // to the sink
  bool broke_protocol = false;
  // Why the peer cannot be reached; null: it can.
  const char* loss() const { return broke_protocol ? "it violates the protocol" : link->loss; }
  bool is_lost() const { return loss() != nullptr; }
  bool is_gone() const { return has_bye || is_lost(); }
  // Frames that the transport holds and could not send at once.
  uint64_t in_flight() const { return link->taken - link->sent; }

  // Records that the peer now knows releases up to `now_known`.
  void MarkAnnounced(uint64_t now_known) {
    if (announced < awaited) answer_frame = link->taken;
    announced = now_known;
    unannounced_bytes = 0;
  }

  // True if the peer's sends need nothing more from this rank: every release that it waits for was
  // announced, and the frame transport has sent that. Otherwise the answer may stay in the frame
  // transport until this rank makes progress again.
  bool HasAllAnswers() const {
    return is_gone() || (announced >= std::min(awaited, released) && link->sent >= answer_frame);
  }
  static constexpr uint64_t kNoFrame = UINT64_MAX;
  uint64_t watched_frame = kNoFrame;  // a caller waits until the link has sent this many frames

  // Messages to the peer.
  uint64_t sent = 0;
  uint64_t released_by_it = 0;                // it keeps slots for numbers below this plus kWindow
  std::array<Request*, kWindow> offers = {};  // by slot, null when settled
  Stream stream;
  uint64_t pending_bytes = 0;  // payload bytes, eager ones excluded, of unfinished sends

  // Messages from the peer.
  std::unique_ptr<Slot[]> slots;
  // One part per slot, for an eager or early payload. The part that was freed last is used first,
  // because it is in a cache.
  std::unique_ptr<std::byte[]> slot_memory;
  std::array<std::byte*, kWindow> free_parts = {};
  size_t free_part_count = 0;
  uint64_t seen = 0;               // numbers below have arrived
  uint64_t received = 0;           // numbers below were taken by a receive, or skipped
  uint64_t released = 0;           // numbers below have a free slot
  uint64_t announced = 0;          // `released` as the peer knows it
  uint64_t unannounced_bytes = 0;  // payload bytes released since
  uint64_t awaited = 0;            // a send of the peer ends once it knows this number is released
  uint64_t answer_frame = 0;       // `taken` of the link at the last such announcement
  Request* posted = nullptr;       // the receive waiting for a header
  // The frame that the transport is writing into memory that this rank gave it: the number of its
  // message. No frame of the peer comes before its end.
  static constexpr uint64_t kNothing = UINT64_MAX;
  uint64_t placed = kNothing;

  std::byte* TakePart() { return free_parts[--free_part_count]; }
  void GivePartBack(std::byte* part) { free_parts[free_part_count++] = part; }

  Slot& slot(uint64_t number) { return slots[number % kWindow]; }
};

}  // namespace onebit::channel
