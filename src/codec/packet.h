// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The payload of a compressed message (FORMAT.md, "Payload"): scales, then sign bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "kernels/kernels.h"

namespace onebit {

// The number of scales and elements in a packet, which determine the rest of its layout.
struct PacketShape {
  size_t scale_count = 0;
  size_t element_count = 0;

  constexpr size_t scale_bytes() const { return scale_count * sizeof(float); }
  constexpr size_t bytes() const { return scale_bytes() + kernels::BitBytes(element_count); }
};

// Shape of `element_count` elements of one chunk with one scale per `block`, or a single one if
// block is 0. Without elements there is no scale.
constexpr PacketShape ShapeOf(size_t element_count, size_t block) {
  if (element_count == 0) return {};
  return {block == 0 ? 1 : kernels::BlockCount(element_count, block), element_count};
}

// A packet in memory that begins on a 4-byte boundary.
struct PacketView {
  float* scales = nullptr;
  uint8_t* bits = nullptr;
};

inline PacketView ViewOf(std::byte* packet, PacketShape shape) {
  return {reinterpret_cast<float*>(packet),
          reinterpret_cast<uint8_t*>(packet + shape.scale_bytes())};
}

Status CheckChecksum(std::span<const std::byte> payload, kernels::Checksum expected);

// Checks the content of a packet that arrived intact: scales must be finite and not negative,
// unused bits 0.
Status CheckForm(std::span<const std::byte> packet, PacketShape shape);

// Checks size, checksum and form of a received packet. The form of a packet that is flagged
// non-finite is not checked.
Status CheckPacket(std::span<const std::byte> packet, PacketShape shape, bool is_nonfinite,
                   kernels::Checksum expected);

}  // namespace onebit
