// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Request: a pending send or receive of an endpoint.
#pragma once

#include <cstdint>

#include "plugins/common/request_pool.h"
#include "plugins/transport_local/slot.h"

namespace onebit::local {

enum class RequestState : uint32_t {
  kUnused,
  kOffered,  // send: the receiver has not taken the payload yet
  kPosted,   // receive: no message yet
  kHeader,   // receive: the header is with the caller, the payload not yet
  kDone,
  kFailed,  // the peer is gone or gave this message up
  kSent,    // the shared request of all sends that were done at once; never ends
};

struct Request {
  RequestState state;
  int peer;
  Slot* slot;     // of the message; null while posted, done or failed
  void* header;   // receive: where the caller wants the header
  Request* next;  // while unused: another one
};

using RequestPool = plugin::RequestPool<Request, RequestState>;

}  // namespace onebit::local
