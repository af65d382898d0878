// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// SpinLock: who may use an endpoint now, its owner or an abort.
#pragma once

#include <atomic>
#include <cstdint>

namespace onebit::plugin {

// An abort has to tell the peers, and a frame transport allows one thread at a time only. So
// whoever works on the endpoint holds the turn. An abort marks the endpoint; if the turn is free it
// takes it and tells the peers, else the holder finds the mark when it gives the turn back, and
// tells them. Marking and taking are changes of one word, so exactly one of the two sees the other.
class SpinLock {
 public:
  // Owner. Waits for an abort that is telling the peers, which takes a bounded time.
  void Take();
  // Holder. False: the endpoint has been aborted; the caller still holds the turn, tells the peers
  // if nobody did, and gives up the turn by GiveAborted.
  bool Give();
  void GiveAborted();

  // Any thread. True for the first mark.
  bool MarkAborted();
  // Takes the turn if it is free. Does not wait.
  bool TryTake();

  // acquire: what the aborting thread did before is visible.
  bool is_aborted() const { return (state_.load(std::memory_order_acquire) & kAborted) != 0; }

 private:
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kAborted = 2;
  std::atomic<uint32_t> state_{0};
};

}  // namespace onebit::plugin
