// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Staging memory of one endpoint: frames not sent yet are kept here, never in the user's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace onebit::plugin {

// A fixed number of recycled slots. The slot used last is used next, so few are touched. One thread
// at a time.
class SlotPool {
 public:
  struct Slot {
    Slot* next;
    SlotPool* pool;
    uint64_t* sent;  // counter of the link that carries it
    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  };

  // Throws std::bad_alloc. Memory is touched when first used.
  SlotPool(size_t count, size_t slot_bytes)
      : stride_((sizeof(Slot) + slot_bytes + 63) / 64 * 64),
        count_(count),
        memory_(std::make_unique_for_overwrite<std::byte[]>(count * stride_)) {}
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // All of it, for a network library that wants to know it beforehand.
  std::span<std::byte> memory() { return {memory_.get(), count_ * stride_}; }

  // Null when all are in use.
  Slot* Take() {
    Slot* slot = unused_;
    if (slot != nullptr) {
      unused_ = slot->next;
    } else if (touched_ < count_) {
      slot = reinterpret_cast<Slot*>(memory_.get() + touched_++ * stride_);
      slot->pool = this;
    }
    return slot;
  }

  void Return(Slot* slot) {
    slot->next = unused_;
    unused_ = slot;
  }

 private:
  const size_t stride_;
  const size_t count_;
  const std::unique_ptr<std::byte[]> memory_;
  size_t touched_ = 0;
  Slot* unused_ = nullptr;
};

}  // namespace onebit::plugin
