// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ControlQueue as a ring buffer.
#include "channel/control_queue.h"

namespace onebit::channel {

bool ControlQueue::Push(const Control& control) {
  if (count_ == ring_.size()) return false;
  ring_[(first_ + count_++) % ring_.size()] = control;
  return true;
}

void ControlQueue::Pop() {
  first_ = (first_ + 1) % ring_.size();
  --count_;
}

}  // namespace onebit::channel
