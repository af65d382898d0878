// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A 64-bit checksum of stored bytes. It detects damage; it does not stop an adversary.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace onebit {

static_assert(std::endian::native == std::endian::little,
              "words are little-endian; a big-endian port swaps here");

// Each step is a bijection of the state and of the word. Two inputs of equal length and seed that
// differ within one aligned word of 8 bytes therefore never have the same digest; other pairs
// collide with a probability of 2^-64.
inline uint64_t DigestOf(std::span<const std::byte> bytes, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9e37'79b9'7f4a'7c15u;
  const auto mix = [](uint64_t state, uint64_t word) {
    return std::rotl((state ^ word) * kOdd, 29);
  };
  uint64_t state = mix(seed, bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;  // the last one is padded with zeros
    const size_t size = bytes.size() < sizeof(word) ? bytes.size() : sizeof(word);
    std::memcpy(&word, bytes.data(), size);
    state = mix(state, word);
    bytes = bytes.subspan(size);
  }
  return mix(state ^ (state >> 31), 0);
}

}  // namespace onebit
