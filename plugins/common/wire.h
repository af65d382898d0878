// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What travels between two endpoints: frames, each with this header.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>

namespace onebit::plugin {

inline constexpr uint64_t kNsPerMs = 1'000'000;

// Messages a rank may send to a peer before the peer has released the first of them. The peer keeps
// a slot for each, so whatever arrives finds its slot and memory is bounded.
inline constexpr uint64_t kWindow = 32;

// Bytes of payloads that are on their way over a network to one peer, before another one may be
// sent. A rank sends to all others in turn, so the rest waits: no peer gets far ahead of the
// slowest, and the queues of switches do not overflow.
inline constexpr uint64_t kMostPendingBytes = 2u << 20;

// A message goes like this. The sender gives it the next number of the pair and sends kMessage with
// the user's header; a payload up to eagerBytes comes along, and the send is done when the frame
// transport has sent it. A larger one stays: the receiver answers kAccept once it has memory for
// it, or kDrop if it does not want it; the sender then sends kData pieces, each small enough that
// the frame transport sends it in one go. The sender may say kWithdraw meanwhile. Every header says
// how many messages its sender has released.
//
// A payload of medium size (EarlyBytes) does not wait for the answer: it begins in the message
// itself and its pieces follow at once; they lie in memory of the slot until the receiver takes
// them. A receiver that is not scheduled just then holds up nothing but itself.
//
// The send of a payload that is not eager is done when the receiver has released its slot. What a
// frame transport calls sent may lie in a buffer of its own, because a socket was full, and goes on
// only when the sender makes progress; a rank whose sends are all done need not do that for a long
// time. (Of UCX a flush would tell as well, but in a trial ucp_ep_flush_nbx of UCX 1.13 never ended
// at once in error mode PEER, and the transport hung at times.) For the same reason a receive is
// not done before the release that its sender waits for is out: in shared memory it may find the
// sender's queue full of what other ranks have sent.
//
// A rendezvous of the frame transport's own is not used: neither end could take its buffer back
// from it in bounded time.
enum class WireType : uint16_t {
  kHello = 1,     // sent by connect, once
  kMessage = 2,   // value: bytes of the payload
  kAccept = 3,    // value: unused
  kData = 4,      // value: where in the payload this piece begins
  kDrop = 5,      // value: unused
  kWithdraw = 6,  // value: unused
  kRelease = 7,   // nothing but `released`; every header says it
  kBye = 8,       // number: messages sent in all; value: 1 after an abort
};

// The same on all hosts: little-endian ones are joined only with their like.
struct WireHeader {
  uint32_t magic;
  WireType type;
  uint16_t header_bytes;  // kMessage: the user's header follows this one
  uint32_t source;        // rank of the sender
  uint32_t unused;
  uint64_t comm_id;
  uint64_t number;
  uint64_t value;
  uint64_t released;  // messages that `source` got from the receiver of this: all below are gone
};
static_assert(sizeof(WireHeader) == 48);

inline constexpr uint32_t kWireMagic = 0x32554e4f;  // "ONU2"

// Header and user's header.
inline constexpr size_t kMostHeaderBytes = sizeof(WireHeader) + ONEBIT_TRANSPORT_HEADER_BYTES;

}  // namespace onebit::plugin
