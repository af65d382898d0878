// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Elements of a tensor at which blocks restart (FORMAT.md, "Chunks, blocks, segments"), so that no
// scale spans two parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"

namespace onebit {

// Calls share one object, so a copy of a plan's key allocates nothing. A null pointer stands for a
// tensor without cuts.
class Cuts {
 public:
  // `offsets` must ascend, from above 0 to below `count`, the elements of the tensor. None: null.
  static Result<std::shared_ptr<const Cuts>> Create(std::span<const size_t> offsets, size_t count);

  // The last cut at or before `element`; 0 if there is none.
  size_t AtOrBefore(size_t element) const;
  // The first cut behind `element`; the end of the tensor if there is none.
  size_t After(size_t element) const;
  size_t size() const { return ends_.size() - 1; }
  // Identifies the cuts in message headers; never 0.
  uint32_t digest() const { return digest_; }

  // A mask with a gap before each cut, so that bits behind every cut begin at a byte.
  size_t mask_bytes() const { return mask_bytes_; }
  std::vector<uint8_t> Spread(std::span<const uint8_t> mask) const;
  // The byte of that mask whose lowest bit is that of `element`, which lies a multiple of 8
  // elements behind its cut.
  size_t MaskByte(size_t element) const;

 private:
  size_t RunOf(size_t element) const;
  size_t BeginOf(size_t run) const { return run == 0 ? 0 : ends_[run - 1]; }

  std::vector<size_t> ends_;         // the cuts, and the end of the tensor
  std::vector<size_t> first_bytes_;  // by run of elements between cuts: its first byte of the mask
  size_t mask_bytes_ = 0;
  uint32_t digest_ = 0;
};

}  // namespace onebit
