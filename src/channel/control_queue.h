// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Control messages that could not be sent to one peer yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "channel/wire.h"

namespace onebit::channel {

struct Control {
  WireType type;
  uint64_t number;
  uint64_t value;
};

// First in, first out. The capacity is sufficient: before a slot of the window is used again it
// causes at most one kAccept, one kDrop and one kWithdraw, because no new message is sent while
// controls wait; and at most one kRelease and one kBye wait.
class ControlQueue {
 public:
  bool is_empty() const { return count_ == 0; }
  const Control& front() const { return ring_[first_]; }

  // Returns false and queues nothing if the queue is full, which means a bug of ours or a peer that
  // breaks the protocol.
  bool Push(const Control& control);
  void Pop();
  void Clear() { count_ = 0; }

 private:
  std::array<Control, 4 * kWindow + 4> ring_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace onebit::channel
