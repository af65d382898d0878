// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MessageRequest: a pending send or receive of a message channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/request_pool.h"

namespace onebit {

// Largest header of a message, in bytes.
inline constexpr size_t kMessageHeaderBytes = 64;

// The states of a request that MessageChannel::Test tells apart.
enum class TransferState : int {
  kPending = 0,  // nothing new
  kHeader = 1,   // receive only: the header is in place; call Accept or Cancel
  kDone = 2,     // finished; the buffers are the caller's again
};

namespace channel {

enum class RequestState : uint32_t {
  kUnused,
  kStaged,     // send: eager; the frame transport holds it and could not send it at once
  kOffered,    // send: the receiver has not answered yet
  kStreaming,  // send: the receiver has memory, pieces are on their way
  kLeaving,    // send: the frame transport has all pieces, the receiver does not yet
  kPosted,     // receive: no message yet
  kHeader,     // receive: the caller has the header, but not yet the payload
  kReceiving,  // receive: accepted, pieces arrive
  kDone,
  kFailed,  // the peer has ended or gave this message up
  kSent,    // shared by all sends that completed at once; never ends
  kNative,  // the allreduce of the layer below; never ends
};

struct Request {
  RequestState state;
  int peer;
  uint64_t number;           // number of the message; unset while posted
  uint64_t frame;            // send, staged: complete when the link has sent this many frames
  std::byte* header;         // receive: where the caller wants the header
  const std::byte* payload;  // send: the caller's payload
  std::byte* target;         // receive: the caller's memory, once accepted
  size_t payload_bytes;
  size_t moved_bytes;  // sent or received so far
  Request* next;       // while streaming: the next payload; while unused: the next free request
};

using MessageRequests = RequestPool<Request, RequestState>;

}  // namespace channel

// Owned by the channel. Dead, and not to be used any more, once Test reported kDone or an error, or
// Cancel returned.
using MessageRequest = channel::Request*;

}  // namespace onebit
