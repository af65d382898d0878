// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Pinned host memory through which dense calls on device memory pass over a host transport. Larger
// calls pass piece by piece: while the host moves one piece, the stream copies the next.
//
// In an all-to-all-v only the two ranks of a pair know the length of their message. A piece of the
// call has as many elements of each message as all ranks know to fit, and ranks take as many pieces
// as their own longest message needs. A piece needs only those before it on other ranks, so ranks
// do not wait for each other in a circle.
//
// Sends and receives pass whole. Those of a group must be able to pass each other in any order,
// because their peers may have grouped them differently, and a stream has one order of copies.
#pragma once

#include <cstddef>

#include "device/devices.h"
#include "device/memory.h"
#include "exec/call_request.h"

namespace onebit {

// A range of a call's elements (for collectives with a part per rank: of every part; for an
// all-to-all-v of every message, which may end before).
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

  // The elements of a piece, or 0 if the call passes in one piece. Equal on all ranks. An
  // all-to-all-v always has pieces.
  size_t PieceCount(const CallRequest& request) const;
  // The elements that these pieces have together.
  size_t PiecedCount(const CallRequest& request) const;
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
