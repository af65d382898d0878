// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packets of the codec lossless: a word for each block of a tensor, then the bytes of all blocks
// (FORMAT.md, section 22).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/lossless.h"

namespace onebit {

// A packet; nothing if it would be no shorter than the elements.
using LosslessPacket = std::optional<std::span<const std::byte>>;

// Makes packets, in memory that grows up to the length of the tensor and is kept for the next one.
class LosslessEncoder {
 public:
  // Encodes the changes from `before` to `now`, `count` elements of `width` bytes. The packet lasts
  // until the next one.
  Result<LosslessPacket> Encode(const void* now, const void* before, size_t count, size_t width);
  size_t bytes() const { return packet_.size(); }

 private:
  Status Grow(size_t bytes, size_t most);

  AlignedBuffer packet_;
  size_t used_ = 0;
  std::unique_ptr<kernels::LosslessScratch> scratch_;
};

// Makes `copy`, which is what the packet was encoded against, what it was made of. kLosslessSlack
// bytes behind the packet can be read. False: it is no packet of so many elements, and `copy` may
// have changed in part.
bool DecodeLossless(std::span<const std::byte> packet, size_t count, size_t width, void* copy);

}  // namespace onebit
