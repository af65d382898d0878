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
  kHeader,   // receive: the caller has the header, but not yet the payload
  kDone,
  kFailed,  // the peer has ended or gave this message up
  kSent,    // shared by all sends that completed at once; never ends
};

struct Request {
  RequestState state;
  int peer;
  Slot* slot;     // the message's slot; null while posted, done or failed
  void* header;   // receive: where the caller wants the header
  Request* next;  // while unused: the next free request
};

using RequestPool = plugin::RequestPool<Request, RequestState>;

}  // namespace onebit::local
