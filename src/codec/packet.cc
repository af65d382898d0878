// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/packet.h"

#include <cstring>

namespace onebit {
namespace {

// Finite and sign bit clear: one comparison of the bit pattern.
bool IsScale(uint32_t pattern) { return pattern < 0x7f80'0000u; }

}  // namespace

Status CheckChecksum(std::span<const std::byte> payload, kernels::Checksum expected) {
  const auto actual = kernels::cpu::ChecksumOf(payload.data(), payload.size());
  if (actual == expected) return OkStatus();
  return Error(Code::kCorrupt,
               "payload of {} bytes has checksum {:08x}:{:08x}, its header says {:08x}:{:08x}: "
               "damaged on the way",
               payload.size(), actual.sum, actual.weighted, expected.sum, expected.weighted);
}

Status CheckForm(std::span<const std::byte> packet, PacketShape shape) {
  for (size_t i = 0; i < shape.scale_count; ++i) {
    uint32_t pattern;
    std::memcpy(&pattern, packet.data() + i * sizeof(float), sizeof(pattern));
    if (!IsScale(pattern)) {
      return Error(Code::kCorrupt, "scale {} of {} is negative or not finite ({:#010x})", i,
                   shape.scale_count, pattern);
    }
  }
  if (const size_t used = shape.element_count % 8; used != 0) {
    const auto last = static_cast<uint8_t>(packet.back());
    if ((last >> used) != 0) {
      return Error(Code::kCorrupt, "unused bits of the last byte are set ({:#04x}, {} used)", last,
                   used);
    }
  }
  return OkStatus();
}

Status CheckPacket(std::span<const std::byte> packet, PacketShape shape, bool is_nonfinite,
                   kernels::Checksum expected) {
  if (packet.size() != shape.bytes()) {
    return Error(Code::kCorrupt, "payload has {} bytes, {} were expected", packet.size(),
                 shape.bytes());
  }
  ONEBIT_TRY(CheckChecksum(packet, expected));
  return is_nonfinite ? OkStatus() : CheckForm(packet, shape);
}

}  // namespace onebit
