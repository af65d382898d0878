// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Payloads on their way to one peer, one after the other.
#pragma once

#include "plugins/common/message_request.h"

namespace onebit::plugin {

// Early payloads, and others once they are accepted. The first is there first, while the rest still
// travels.
class Stream {
 public:
  bool is_empty() const { return first_ == nullptr; }
  Request* first() const { return first_; }
  void Append(Request* request);
  // `request` is in here.
  void Remove(Request* request);

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

}  // namespace onebit::plugin
