// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/long_lists.h"

#include <cstring>

namespace onebit {

Status LongLists::Reserve(size_t bytes) {
  if (bytes <= capacity()) return OkStatus();
  for (DeviceEvent& event : was_read_) {
    if (event.get() != nullptr) continue;
    ONEBIT_ASSIGN_OR_RETURN(event, DeviceEvent::Create(devices_));
  }
  ONEBIT_TRY(memory_.Reserve(bytes, [this](size_t grown) {
    return Memory::CreateOrdered({MemoryKind::kDevice, device_}, &devices_, grown,
                                 "lists of launches");
  }));
  return pinned_.Reserve(kSlots * bytes, [this](size_t grown) {
    return Memory::CreatePinned(devices_, device_, grown, "lists of launches");
  });
}

// A replay of a graph would read what a later batch has put into the slot.
void LongLists::Begin(onebitStream_t stream, bool is_capturing) {
  stream_ = stream;
  has_slot_ = !is_capturing;
  if (used_ != 0) slot_ = (slot_ + 1) % kSlots;
  used_ = 0;
}

Result<const std::byte*> LongLists::Put(std::span<const std::byte> list) {
  if (!has_slot_ || list.size() > capacity() - used_) return nullptr;
  void* const was_read = was_read_[slot_].get();
  if (used_ == 0) {
    ONEBIT_ASSIGN_OR_RETURN(has_slot_, devices_.IsDone(was_read));
    if (!has_slot_) return nullptr;
  }
  std::byte* const pinned = pinned_.data() + slot_ * (pinned_.size() / kSlots) + used_;
  std::byte* const copy = memory_.data() + used_;
  std::memcpy(pinned, list.data(), list.size());
  used_ += list.size();
  ONEBIT_TRY(devices_.Copy(copy, pinned, list.size(), stream_));
  ONEBIT_TRY(devices_.Record(was_read, stream_));
  return copy;
}

void LongLists::LeakMemory() {
  pinned_.Release();
  memory_.Release();
}

}  // namespace onebit
