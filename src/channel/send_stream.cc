// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "channel/send_stream.h"

namespace onebit::channel {

void Stream::Append(Request* request) {
  request->next = nullptr;
  (is_empty() ? first_ : last_->next) = request;
  last_ = request;
}

void Stream::Remove(Request* request) {
  Request* before = nullptr;
  for (Request* other = first_; other != request; other = other->next) before = other;
  (before == nullptr ? first_ : before->next) = request->next;
  if (last_ == request) last_ = before;
}

}  // namespace onebit::channel
