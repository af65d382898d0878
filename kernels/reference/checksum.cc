// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The checksum of a payload, one byte at a time.
#include "kernels/kernels.h"

namespace onebit::kernels::reference {

Checksum ChecksumOf(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  Checksum checksum;
  for (size_t i = 0; i < bytes; ++i) {
    // Byte i contributes to word i / 4; both sums are linear, so words need not be assembled.
    const uint32_t value = uint32_t{p[i]} << (8 * (i % 4));
    checksum.sum += value;
    checksum.weighted += static_cast<uint32_t>(i / 4 + 1) * value;
  }
  return checksum;
}

}  // namespace onebit::kernels::reference
