// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/packet.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/sparse_form.h"

namespace onebit {
namespace {

// Finite and sign bit clear: one comparison of the bit pattern.
bool IsScale(uint32_t pattern) { return pattern < 0x7f80'0000u; }

constexpr uint16_t kNanScale = 0x7fc0;  // bf16, of a block that is not finite

Status CheckSignScales(std::span<const std::byte> packet, const PacketShape& shape) {
  for (size_t i = 0; i < shape.scale_count; ++i) {
    uint32_t pattern;
    std::memcpy(&pattern, packet.data() + i * sizeof(float), sizeof(pattern));
    if (!IsScale(pattern)) {
      return Error(Code::kCorrupt, "scale {} of {} is negative or not finite ({:#010x})", i,
                   shape.scale_count, pattern);
    }
  }
  return OkStatus();
}

// Minimums may have any finite value.
Status CheckLowBitScales(std::span<const std::byte> packet, const PacketShape& shape) {
  const bool may_be_nan = !shape.codec.has_feedback();
  for (size_t i = 0; i < shape.used_scale_bytes() / sizeof(uint16_t); ++i) {
    uint16_t pattern;
    std::memcpy(&pattern, packet.data() + i * sizeof(pattern), sizeof(pattern));
    const bool is_scale = shape.scale_count > i;
    const bool is_finite = (pattern & 0x7f80u) != 0x7f80u;
    if (is_scale ? (is_finite && pattern < 0x8000u) || (may_be_nan && pattern == kNanScale)
                 : is_finite) {
      continue;
    }
    return Error(Code::kCorrupt, "{} {} of {} is {} ({:#06x})", is_scale ? "scale" : "minimum",
                 i % shape.scale_count, shape.scale_count,
                 is_scale ? "negative or not finite" : "not finite", pattern);
  }
  for (size_t i = shape.used_scale_bytes(); i < shape.scale_bytes(); ++i) {
    if (packet[i] == std::byte{0}) continue;
    return Error(Code::kCorrupt, "padding between scales and codes is not 0 (byte {})", i);
  }
  return OkStatus();
}

bool IsZero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Sets *is_absent if the packet behind the weight is missing or all zeros.
Status CheckWeightOf(std::span<const std::byte> packet, const PacketShape& shape, bool* is_absent) {
  const float weight = WeightOf(packet.data());
  uint32_t pattern;
  std::memcpy(&pattern, packet.data(), sizeof(pattern));
  *is_absent = pattern == 0;
  ONEBIT_TRY(CheckWeight(weight, shape.is_of_host ? kMostWeightOfRanks : kMostWeight));
  if (!IsZero(packet.subspan(sizeof(pattern), kWeightBytes - sizeof(pattern)))) {
    return Error(Code::kCorrupt, "padding after the weight is not 0");
  }
  if (*is_absent && !IsZero(packet.subspan(kWeightBytes))) {
    return Error(Code::kCorrupt, "the weight is 0, but a packet follows");
  }
  return OkStatus();
}

}  // namespace

float WeightOf(const std::byte* packet) {
  float weight;
  std::memcpy(&weight, packet, sizeof(weight));
  return weight;
}

Status CheckWeight(float weight, float most) {
  const auto pattern = std::bit_cast<uint32_t>(weight);
  if (pattern == 0 || (weight >= kLeastWeight && weight <= most)) return OkStatus();
  return Error(Code::kCorrupt, "the weight is {} ({:#010x}), not 0 or from 2^-64 to 2^{}", weight,
               pattern, std::ilogb(most));
}

void SetWeight(float weight, std::byte* packet) {
  std::memset(packet, 0, kWeightBytes);
  std::memcpy(packet, &weight, sizeof(weight));
}

Status CheckChecksum(std::span<const std::byte> payload, kernels::Checksum expected) {
  const auto actual = kernels::cpu::ChecksumOf(payload.data(), payload.size());
  if (actual == expected) return OkStatus();
  return Error(Code::kCorrupt,
               "payload of {} bytes has checksum {:08x}:{:08x}, its header says {:08x}:{:08x}: "
               "damaged in transit",
               payload.size(), actual.sum, actual.weighted, expected.sum, expected.weighted);
}

Status CheckForm(std::span<const std::byte> packet, const PacketShape& shape) {
  if (shape.is_weighted) {
    bool is_absent = false;
    ONEBIT_TRY(CheckWeightOf(packet, shape, &is_absent));
    if (is_absent) return OkStatus();
    if (packet.size() < shape.bytes()) {
      return Error(Code::kCorrupt, "the weight is not 0, but no packet follows");
    }
    packet = packet.subspan(kWeightBytes);
  }
  if (shape.codec.is_sparse()) {
    return CheckSparseForm(packet, shape.codec.sparse_format(), shape.element_count,
                           !shape.codec.has_feedback());
  }
  if (shape.codec.is_low_bit()) ONEBIT_TRY(CheckLowBitScales(packet, shape));
  if (shape.codec.is_sign()) ONEBIT_TRY(CheckSignScales(packet, shape));
  if (const size_t used = shape.element_count * shape.codec.element_bits() % 8; used != 0) {
    const auto last = static_cast<uint8_t>(packet.back());
    if ((last >> used) != 0) {
      return Error(Code::kCorrupt, "unused bits of the last byte are set ({:#04x}, {} used)", last,
                   used);
    }
  }
  return OkStatus();
}

Status CheckPacket(std::span<const std::byte> packet, const PacketShape& shape, bool is_nonfinite,
                   kernels::Checksum expected) {
  const bool is_absent = shape.is_weighted && packet.size() == kWeightBytes;
  if (packet.size() != shape.bytes() && !is_absent) {
    return Error(Code::kCorrupt, "payload has {} bytes, {} were expected", packet.size(),
                 shape.bytes());
  }
  ONEBIT_TRY(CheckChecksum(packet, expected));
  if (is_nonfinite) return OkStatus();
  ONEBIT_TRY(CheckForm(packet, shape));
  if (shape.is_weighted && packet.size() > kWeightBytes && WeightOf(packet.data()) == 0) {
    return Error(Code::kCorrupt, "the weight is 0, but a packet follows");
  }
  return OkStatus();
}

}  // namespace onebit
