// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The requests of one endpoint: a fixed number, recycled, never allocated after connect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace onebit::ucx {

enum class RequestState : uint32_t {
  kUnused,
  kOffered,    // send: the receiver has not answered yet
  kStreaming,  // send: the receiver has memory, pieces are on their way
  kLeaving,    // send: UCX has all pieces, the receiver does not have them yet
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
  void* header;              // receive: where the caller wants the header
  const std::byte* payload;  // send: the caller's payload
  std::byte* target;         // receive: the caller's memory, once accepted
  size_t payload_bytes;
  size_t moved_bytes;  // sent or received so far
  Request* next;       // while streaming: the payload behind this one; while unused: another one
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
      unused_ = request->next;
    } else if (touched_ < capacity_) {
      request = &requests_[touched_++];
    } else {
      return nullptr;
    }
    *request = {.state = state, .peer = peer};
    return request;
  }

  void Return(Request* request) {
    *request = {.state = RequestState::kUnused, .next = unused_};
    unused_ = request;
  }

 private:
  std::unique_ptr<Request[]> requests_;
  size_t capacity_;
  size_t touched_ = 0;  // requests at and beyond this index were never used
  Request* unused_ = nullptr;
};

}  // namespace onebit::ucx
