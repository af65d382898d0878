// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Brings lists to a device that are too long for the parameters of a launch, so that one launch
// takes a list of any length.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "device/devices.h"
#include "device/memory.h"

namespace onebit {

// Serves the batches of one communicator, whose order on the device is their caller's concern. The
// device must be current.
class LongLists {
 public:
  LongLists(const Devices& devices, int device) : devices_(devices), device_(device) {}

  // Allocates for batches that have lists of so many bytes together.
  Status Reserve(size_t bytes);
  size_t capacity() const { return std::min(pinned_.size() / kSlots, memory_.size()); }

  // Begins a batch behind the previous one, whose lists on the device it overwrites.
  void Begin(onebitStream_t stream, bool is_capturing);

  // Calls launch_all(address of the list on the device) if the list is longer than `most`,
  // otherwise launch_part(list). Where the device cannot be given the list, launch_part gets parts
  // of up to `most` entries: it was not reserved for, the stream is being captured, or the host is
  // kSlots batches ahead of the device. An empty list has no launches.
  template <class Entry, class LaunchAll, class LaunchPart>
  Status Launch(std::span<const Entry> list, size_t most, const LaunchAll& launch_all,
                const LaunchPart& launch_part) {
    static_assert(alignof(Entry) == 8, "lists follow each other in memory");
    if (list.size() > most) {
      ONEBIT_ASSIGN_OR_RETURN(const std::byte* const copy, Put(std::as_bytes(list)));
      if (copy != nullptr) return launch_all(reinterpret_cast<const Entry*>(copy));
    }
    for (size_t begin = 0; begin < list.size(); begin += most) {
      ONEBIT_TRY(launch_part(list.subspan(begin, std::min(most, list.size() - begin))));
    }
    return OkStatus();
  }

  struct Blocks {
    GrowableBuffer pinned, memory;
  };
  Blocks TakeMemory() { return {std::move(pinned_), std::move(memory_)}; }
  void LeakMemory();

 private:
  // Batches whose copies may be waiting for the stream, each with its part of the pinned memory.
  static constexpr size_t kSlots = 3;

  // Enqueues a copy of the list and returns its address; null if there is no room.
  Result<const std::byte*> Put(std::span<const std::byte> list);

  const Devices& devices_;
  const int device_;
  GrowableBuffer pinned_;
  GrowableBuffer memory_;                     // on the device
  std::array<DeviceEvent, kSlots> was_read_;  // recorded behind the last copy from a slot
  // The batch in progress has these.
  onebitStream_t stream_ = nullptr;
  bool has_slot_ = true;
  size_t slot_ = 0;
  size_t used_ = 0;
};

}  // namespace onebit
