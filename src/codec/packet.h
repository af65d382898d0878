// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The payload of a compressed message (FORMAT.md, "Payload", "Low-bit codecs" and "Sparse codecs"):
// scales, then sign bits or codes; or magnitudes, indices and values of the elements that are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "codec/codec.h"
#include "kernels/kernels.h"
#include "kernels/low_bit.h"
#include "kernels/sparse.h"

namespace onebit {

// The settings of a call that decide how its packets look.
struct PacketFormat {
  Codec codec = {.kind = CodecKind::kSign};
  bool is_weighted = false;  // what a rank contributes has a weight (FORMAT.md, "Weights")
  bool is_of_host = false;   // the weight is that of several ranks
};

// Bytes before a packet whose sender counts with a weight: the weight as fp32, and zeros.
inline constexpr size_t kWeightBytes = 16;

// A weight is 0 or in this range, so that no sum of weights overflows or is subnormal.
inline constexpr float kLeastWeight = 0x1p-64f;
inline constexpr float kMostWeight = 0x1p64f;
inline constexpr float kMostWeightOfRanks = 0x1p80f;  // a sum of weights

// The codec of a packet and its number of scales and elements, which determine its layout.
struct PacketShape {
  size_t scale_count = 0;
  size_t element_count = 0;
  Codec codec = {.kind = CodecKind::kSign};
  bool is_weighted = false;
  bool is_of_host = false;

  constexpr size_t weight_bytes() const { return is_weighted ? kWeightBytes : 0; }
  // Scales, minimums and padding.
  constexpr size_t scale_bytes() const { return codec.scale_bytes(scale_count); }
  constexpr size_t used_scale_bytes() const { return codec.used_scale_bytes(scale_count); }
  constexpr size_t bytes() const {
    if (codec.is_sparse()) return weight_bytes() + codec.sparse_format().Bytes(element_count);
    return weight_bytes() + scale_bytes() + (element_count * codec.element_bits() + 7) / 8;
  }
};

// Shape of `element_count` elements of one chunk with one scale per block, or a single one if block
// is 0. Without elements there is no scale.
constexpr PacketShape ShapeOf(size_t element_count, const PacketFormat& format) {
  PacketShape shape = {
      .codec = format.codec, .is_weighted = format.is_weighted, .is_of_host = format.is_of_host};
  if (element_count == 0) return shape;
  const size_t block = format.codec.block;
  shape.scale_count = block == 0 ? 1 : kernels::BlockCount(element_count, block);
  shape.element_count = element_count;
  return shape;
}
// The same for signs.
constexpr PacketShape ShapeOf(size_t element_count, size_t block) {
  return ShapeOf(element_count,
                 PacketFormat{{.kind = CodecKind::kSign, .block = static_cast<uint32_t>(block)}});
}

// A packet in memory that begins on a 4-byte boundary.
struct PacketView {
  float* scales = nullptr;
  uint8_t* bits = nullptr;
};

inline PacketView ViewOf(std::byte* packet, const PacketShape& shape) {
  packet += shape.weight_bytes();
  return {reinterpret_cast<float*>(packet),
          reinterpret_cast<uint8_t*>(packet + shape.scale_bytes())};
}

// A low-bit packet from scale number `scale` and element number `element` on. The codes of that
// element begin at a byte.
inline kernels::LowBitPacket LowBitViewOf(std::byte* packet, const PacketShape& shape,
                                          size_t scale = 0, size_t element = 0) {
  packet += shape.weight_bytes();
  auto* const scales = reinterpret_cast<uint16_t*>(packet);
  return {.scales = scales + scale,
          .minimums = kernels::HasMinimum(shape.codec.low_bit) ? scales + shape.scale_count + scale
                                                               : nullptr,
          .codes = reinterpret_cast<uint8_t*>(packet) + shape.scale_bytes() +
                   element * shape.codec.element_bits() / 8};
}

Status CheckChecksum(std::span<const std::byte> payload, kernels::Checksum expected);

// The weight before a packet.
float WeightOf(const std::byte* packet);
// kCorrupt unless it is 0, or in its range up to `most`.
Status CheckWeight(float weight, float most);
void SetWeight(float weight, std::byte* packet);

// Checks the content of a packet that arrived intact: scales must be finite and not negative,
// unused bits and padding 0. Without feedback, a block that is not finite may be NaN. Indices of
// elements must ascend within their blocks. A weight is in its range; if it is 0 the packet is
// missing, or in a group all zeros.
Status CheckForm(std::span<const std::byte> packet, const PacketShape& shape);

// Checks size, checksum and form of a received packet. The form of a packet that is flagged
// non-finite is not checked.
Status CheckPacket(std::span<const std::byte> packet, const PacketShape& shape, bool is_nonfinite,
                   kernels::Checksum expected);

}  // namespace onebit
