// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Control messages that wait for room on the way to one peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugins/common/wire.h"

namespace onebit::plugin {

struct Control {
  WireType type;
  uint64_t number;
  uint64_t value;
};

// First in, first out. Bounded without an error of its own: a place of the window brings about one
// kAccept, a kDrop, and a kWithdraw before it is used again, as no new message is sent
// while controls wait; and kRelease and kBye wait at most once.
class ControlQueue {
 public:
  bool is_empty() const { return count_ == 0; }
  const Control& front() const { return ring_[first_]; }

  // False, and nothing is queued, when it is full: our bug, or a peer that breaks the protocol.
  bool Push(const Control& control);
  void Pop();
  void Clear() { count_ = 0; }

 private:
  std::array<Control, 4 * kWindow + 4> ring_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace onebit::plugin
