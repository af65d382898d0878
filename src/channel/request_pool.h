// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The requests of one end of a communicator: a fixed number, recycled and never allocated after
// connect.
#pragma once

#include <cstddef>
#include <memory>

namespace onebit {

// Request has members `state`, `peer` and `next`; State::kUnused marks a free one. One thread at a
// time.
template <typename Request, typename State>
class RequestPool {
 public:
  // Throws std::bad_alloc. Requests are touched when first used.
  explicit RequestPool(size_t capacity)
      : requests_(std::make_unique_for_overwrite<Request[]>(capacity)), capacity_(capacity) {}

  // Null when all requests are in use.
  Request* Take(State state, int peer) {
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
    *request = {.state = State::kUnused, .next = unused_};
    unused_ = request;
  }

 private:
  std::unique_ptr<Request[]> requests_;
  size_t capacity_;
  size_t touched_ = 0;  // requests from this index on were never used
  Request* unused_ = nullptr;
};

}  // namespace onebit
