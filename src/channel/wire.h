// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The protocol between two message channels: frames, each with this header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "channel/message_request.h"
#include "onebit/transport.h"

namespace onebit::channel {

inline constexpr uint64_t kNsPerMs = 1'000'000;

// Messages a rank may send to a peer before the peer has released the first of them. The peer keeps
// a slot for each, so every arriving message has a slot and memory is bounded.
inline constexpr uint64_t kWindow = 32;
static_assert(kWindow <= ONEBIT_TRANSPORT_OFFERS);

// Payload bytes that may be on their way to one peer over a network before another payload may be
// sent. A rank sends to all others in turn, so the rest waits: no peer gets far ahead of the
// slowest, and the queues of switches do not overflow.
inline constexpr uint64_t kMostPendingBytes = 2u << 20;

// The sender gives a message the next number of the pair and sends kMessage with the user's header.
// A payload up to eagerBytes comes along, and the send is done when the frame transport has sent
// it. A larger one stays with the sender: the receiver answers kAccept once it has memory for it,
// or kDrop if it does not want it; the sender then sends kData pieces, each small enough that the
// frame transport sends it in one go. The sender may send kWithdraw meanwhile. Every header says
// how many messages its sender has released.
//
// A payload of medium size (EarlyBytes) does not wait for the answer: it begins in the message
// itself and its pieces follow at once, into memory of the slot, until the receiver takes them. A
// receiver that is not scheduled at that moment delays nobody but itself.
//
// Over a link that can pull, the sender offers a payload that is neither eager nor early before it
// sends kMessage, and the receiver copies it instead of answering kAccept: no kData follows.
//
// The send of a payload that is not eager is done when the receiver has released its slot. A frame
// that the frame transport calls sent may still be in a buffer of its own, because a socket was
// full, and leaves only when the sender makes progress; a rank whose sends are all done may not do
// that for a long time. (A UCX flush would tell as well, but in a trial ucp_ep_flush_nbx of UCX
// 1.13 never ended at once in error mode PEER, and the transport hung at times.) For the same
// reason a receive is not done before the release that its sender waits for has left: in shared
// memory the sender's queue may be full of messages from other ranks.
//
// The rendezvous protocol of a network library never touches a user's memory: neither end could
// take it back in bounded time. (Transport `ucx` can move pieces by it between buffers of its own.)
enum class WireType : uint16_t {
  kHello = 1,     // sent by connect, once
  kMessage = 2,   // value: bytes of the payload
  kAccept = 3,    // value: unused
  kData = 4,      // value: offset of this piece in the payload
  kDrop = 5,      // value: unused
  kWithdraw = 6,  // value: unused
  kRelease = 7,   // carries only `released`, which every header has
  kBye = 8,       // number: messages sent in total; value: 1 after an abort
};

// Has the same layout on all hosts, because only little-endian hosts are joined.
struct WireHeader {
  uint32_t magic;
  WireType type;
  uint16_t header_bytes;  // kMessage: size of the user's header, which follows
  uint32_t source;        // rank of the sender
  uint32_t unused;
  uint64_t comm_id;
  uint64_t number;
  uint64_t value;
  uint64_t released;  // messages from the receiver that `source` has released
};
static_assert(sizeof(WireHeader) == 48);

inline constexpr uint32_t kWireMagic = 0x32554e4f;  // "ONU2"

// A rank speaks for itself alone. `peer`: whose link the frame came by; negative: unknown.
inline bool IsFrom(int peer, const WireHeader& wire) {
  return peer < 0 || wire.source == static_cast<uint32_t>(peer);
}

// Both headers together: this one and the user's.
inline constexpr size_t kMostHeaderBytes = sizeof(WireHeader) + kMessageHeaderBytes;
static_assert(kMostHeaderBytes <= ONEBIT_TRANSPORT_FRAME_HEADER_BYTES);

// Payloads up to this size start before the receiver has asked for them: `most`, or less in a
// communicator of many ranks, because each rank keeps a window of them for every other. The limit
// is for all peers of one channel; the memory is touched when first used.
inline constexpr size_t kMostEarlyMemory = 64u << 20;
// Over memory the answer to a larger payload comes soon, and going through a slot would copy it
// once more. (Dense allreduce of 1 MiB, 4 processes on 2 cores: 2.1 ms if all of it is early,
// else 1.1 ms.)
inline constexpr size_t kMostEarlyOverMemory = 64u << 10;
inline size_t EarlyBytes(size_t most, size_t ranks) {
  return std::min(most, kMostEarlyMemory / kWindow / ranks);
}

}  // namespace onebit::channel
