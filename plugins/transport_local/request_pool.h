// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The requests of one endpoint: a fixed number, recycled, never allocated after connect.
#pragma once

#include <cstdint>
#include <memory>

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
  Slot* slot;    // of the message; null while posted, done or failed
  void* header;  // receive: where the caller wants the header
  Request* next_unused;
};

// One thread at a time.
class RequestPool {
 public:
  // Throws std::bad_alloc. Requests are touched when first used.
  explicit RequestPool(size_t capacity)
      : requests_(std::make_unique_for_overwrite<Request[]>(capacity)), capacity_(capacity) {}

  // Null when all requests are in use.
  Request* Take(RequestState state, int peer) {
    Request* request = unused_;
    if (request != nullptr) {
      unused_ = request->next_unused;
    } else if (touched_ < capacity_) {
      request = &requests_[touched_++];
    } else {
      return nullptr;
    }
    *request = {.state = state, .peer = peer};
    return request;
  }

  void Return(Request* request) {
    *request = {.state = RequestState::kUnused, .next_unused = unused_};
    unused_ = request;
  }

  template <typename Visitor>
  void ForEachInUse(Visitor visit) {
    for (size_t i = 0; i < touched_; ++i) {
      if (requests_[i].state != RequestState::kUnused) visit(&requests_[i]);
    }
  }

 private:
  std::unique_ptr<Request[]> requests_;
  size_t capacity_;
  size_t touched_ = 0;  // requests at and beyond this index were never used
  Request* unused_ = nullptr;
};

}  // namespace onebit::local
