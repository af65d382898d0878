// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Payloads in flight to one peer, sent one after the other.
#pragma once

#include "channel/message_request.h"

namespace onebit::channel {

// Holds early payloads, and others once they are accepted. First in, first out, so the first
// arrives complete while the rest still travels.
class Stream {
 public:
  bool is_empty() const { return first_ == nullptr; }
  Request* first() const { return first_; }
  void Append(Request* request);
  // `request` must be in this stream.
  void Remove(Request* request);

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

}  // namespace onebit::channel
