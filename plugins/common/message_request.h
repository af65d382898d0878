// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Request: a pending send or receive of an endpoint that frames messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/common/request_pool.h"

namespace onebit::plugin {

enum class RequestState : uint32_t {
  kUnused,
  kStaged,     // send: eager, and with the frames, which could not send it at once
  kOffered,    // send: the receiver has not answered yet
  kStreaming,  // send: the receiver has memory, pieces are on their way
  kLeaving,    // send: the frames has all pieces, the receiver does not have them yet
  kPosted,     // receive: no message yet
  kHeader,     // receive: the header is with the caller, the payload not yet
  kReceiving,  // receive: accepted, pieces arrive
  kDone,
  kFailed,  // the peer is gone or gave this message up
  kSent,    // the shared request of all sends that were done at once; never ends
};

struct Request {
  RequestState state;
  int peer;
  uint64_t number;           // of the message; none while posted
  uint64_t frame;            // send, staged: it is out when the link has sent so many
  void* header;              // receive: where the caller wants the header
  const std::byte* payload;  // send: the caller's payload
  std::byte* target;         // receive: the caller's memory, once accepted
  size_t payload_bytes;
  size_t moved_bytes;  // sent or received so far
  Request* next;       // while streaming: the payload behind this one; while unused: another one
};

using MessageRequests = RequestPool<Request, RequestState>;

}  // namespace onebit::plugin
