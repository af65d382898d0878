// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Bit strings: bit i mod 8 of byte i / 8 is element i.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onebit {

// Copies `count` bits from bit number `begin` on to bit 0 of `to`. Unused bits of its last byte
// become 0.
inline void CopyBits(std::span<const uint8_t> from, size_t begin, size_t count, uint8_t* to) {
  const size_t shift = begin % 8;
  for (size_t done = 0; done < count; done += 8) {
    const size_t byte = (begin + done) / 8;
    unsigned bits = from[byte];
    if (shift != 0 && byte + 1 < from.size()) bits |= static_cast<unsigned>(from[byte + 1]) << 8;
    bits >>= shift;
    const size_t left = count - done;
    if (left < 8) bits &= (1u << left) - 1;
    to[done / 8] = static_cast<uint8_t>(bits);
  }
}

}  // namespace onebit
