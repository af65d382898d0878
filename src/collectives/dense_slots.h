// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Pinned host memory through which dense calls on device memory pass over a host transport. Larger
// calls pass piece by piece: while the host moves one piece, the stream copies the next. An
// all-to-all-v passes whole, because only the two ranks of a pair know the length of its message:
// there is no number of pieces that all ranks could agree on. So do sends and receives.
#pragma once

#include <cstddef>

#include "collectives/call_request.h"
#include "device/devices.h"
#include "device/memory.h"

namespace onebit {

// A range of a call's elements (for collectives with a part per rank: of every part).
struct DensePiece {
  size_t begin = 0;
  size_t count = 0;
};

class DenseSlots {
 public:
  static constexpr size_t kSlots = 2;
  static constexpr size_t kSlotBytes = size_t{8} << 20;

  DenseSlots(const Comm& comm, const Devices& devices, int device)
      : comm_(comm), devices_(devices), device_(device) {}

  // The elements of a piece, or 0 if the call passes in one piece. Equal on all ranks.
  size_t PieceCount(const CallRequest& request) const;
  // Bytes that a call of this many elements takes.
  size_t BytesFor(const CallRequest& request, size_t count) const;
  // Allocates: the slots, or more for calls that pass whole.
  Status Reserve(size_t bytes);
  std::byte* slot(size_t index) const { return memory_.data() + index % kSlots * kSlotBytes; }
  std::byte* data() const { return memory_.data(); }

  // The call on this piece, with host buffers from `memory` on.
  CallRequest Staged(const CallRequest& request, DensePiece piece, std::byte* memory) const;
  // Enqueue the copies of its input to these buffers, and of its result from them.
  Status CopyIn(const CallRequest& request, DensePiece piece, const CallRequest& staged,
                onebitStream_t stream) const;
  Status CopyOut(const CallRequest& request, DensePiece piece, const CallRequest& staged,
                 onebitStream_t stream) const;
  // Leaks the memory, because copies that never end may be using it.
  void LeakMemory() { memory_.Release(); }

 private:
  size_t ranks() const { return static_cast<size_t>(comm_.ranks()); }
  // The parts of `count` elements in each buffer.
  size_t InputParts(const CallRequest& request) const;
  size_t OutputParts(const CallRequest& request) const;

  const Comm& comm_;
  const Devices& devices_;
  const int device_;
  GrowableBuffer memory_;
};

}  // namespace onebit
