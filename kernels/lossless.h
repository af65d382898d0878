// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of the codec lossless: the changes that make an older copy of a tensor the tensor itself,
// bit for bit (src/codec/FORMAT.md, section 22).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/types.h"

namespace onebit::kernels {

// Elements of a block. The last one of a tensor may have fewer.
inline constexpr size_t kLosslessBlock = 65'536;

constexpr size_t LosslessBlocks(size_t count) { return BlockCount(count, kLosslessBlock); }

// How the bytes of a block say what has changed.
enum class LosslessForm : uint8_t {
  kEqual = 0,     // no element has changed; no bytes
  kGaps = 1,      // the distance from one change to the next, and each change
  kBitmap = 2,    // a bit per element, then each change
  kElements = 3,  // all elements
};

// The word of a block, which precedes the bytes of all blocks.
struct LosslessWord {
  LosslessForm form = LosslessForm::kEqual;
  unsigned gap_bits = 0;     // low bits of a gap's code; kGaps only
  unsigned change_bits = 0;  // low bits of a change's code; kGaps and kBitmap
  size_t bytes = 0;

  constexpr uint32_t Pack() const {
    return static_cast<uint32_t>(form) | gap_bits << 2 | change_bits << 7 |
           static_cast<uint32_t>(bytes) << 12;
  }
  static constexpr LosslessWord Unpack(uint32_t word) {
    return {static_cast<LosslessForm>(word & 3u), word >> 2 & 31u, word >> 7 & 31u, word >> 12};
  }
};

// The element as a number that grows with it: neighbours differ by 1, and -0 precedes +0. The
// function is its own inverse.
template <typename Bits>
constexpr Bits OrderOf(Bits element) {
  using Signed = std::make_signed_t<Bits>;
  const auto all_if_negative =
      static_cast<Bits>(static_cast<Signed>(element) >> (8 * sizeof(Bits) - 1));
  return static_cast<Bits>(element ^ all_if_negative >> 1);
}

// The distance of two elements that differ: its sign, and its magnitude less 1.
struct LosslessChange {
  uint32_t sign = 0;
  uint32_t number = 0;
};

template <typename Bits>
constexpr LosslessChange LosslessChangeOf(Bits now, Bits before) {
  const auto up = static_cast<Bits>(OrderOf(now) - OrderOf(before));
  const uint32_t sign = up >> (8 * sizeof(Bits) - 1);
  const auto magnitude = static_cast<Bits>((up ^ (0u - sign)) + sign);
  return {sign, magnitude - uint32_t{1}};
}

template <typename Bits>
constexpr Bits LosslessChanged(Bits before, LosslessChange change) {
  const uint32_t distance = change.number + 1;
  return OrderOf(
      static_cast<Bits>(OrderOf(before) + ((distance ^ (0u - change.sign)) + change.sign)));
}

// The code of a number: q = number >> low_bits zeros and a one, then low_bits bits of it; or, where
// q would be kLosslessEscape or more, so many zeros, a one, and the number in full.
inline constexpr unsigned kLosslessEscape = 16;

// The low bits of the codes of some numbers: the fewest with which 38.2 % of them have no zeros
// before the one. Where numbers fall off geometrically these make the shortest codes: as long as
// more than 61.8 % have zeros, one more low bit saves more than it costs, 0.618 being the root of
// x^2 + x = 1.
constexpr bool AreEnoughNarrow(size_t narrow, size_t numbers) {
  return narrow * 65'536 >= numbers * 25'036;
}

// `narrow(bits)` counts the numbers below 2^bits; the search begins at `guess`, on which its result
// does not depend.
template <typename Narrow>
unsigned LosslessLowBits(size_t numbers, unsigned guess, const Narrow& narrow) {
  const auto is_enough = [&](unsigned bits) { return AreEnoughNarrow(narrow(bits), numbers); };
  unsigned bits = guess;
  while (!is_enough(bits)) ++bits;
  while (bits > 0 && is_enough(bits - 1)) --bits;
  return bits;
}

// A number's code, the first bit lowest.
struct LosslessCode {
  uint64_t bits = 0;
  unsigned count = 0;
};

constexpr LosslessCode LosslessCodeOf(uint32_t number, unsigned low_bits, unsigned full_bits) {
  const uint32_t zeros = number >> low_bits;
  if (zeros < kLosslessEscape) [[likely]] {
    const uint64_t low = number & ((uint64_t{1} << low_bits) - 1);
    return {(low << 1 | 1) << zeros, zeros + 1 + low_bits};
  }
  return {(uint64_t{number} << 1 | 1) << kLosslessEscape, kLosslessEscape + 1 + full_bits};
}

// The same of a change, whose sign comes first.
constexpr LosslessCode LosslessCodeOf(LosslessChange change, unsigned low_bits,
                                      unsigned full_bits) {
  const LosslessCode code = LosslessCodeOf(change.number, low_bits, full_bits);
  return {code.bits << 1 | change.sign, code.count + 1};
}

// The word of a block with changes, in its shortest form: `choice` has the low bits of its codes,
// and the codes of gaps and changes take so many bits.
constexpr LosslessWord ShortestForm(LosslessWord choice, size_t count, size_t width,
                                    size_t gap_bits, size_t change_bits) {
  const size_t full = count * width;
  const size_t with_gaps = (gap_bits + change_bits + 7) / 8;
  const size_t with_bitmap = (count + 7) / 8 + (change_bits + 7) / 8;
  if (full <= with_gaps && full <= with_bitmap) return {LosslessForm::kElements, 0, 0, full};
  if (with_bitmap <= with_gaps) {
    return {LosslessForm::kBitmap, 0, choice.change_bits, with_bitmap};
  }
  return {LosslessForm::kGaps, choice.gap_bits, choice.change_bits, with_gaps};
}

inline constexpr unsigned kGapBits = 16;  // of a gap in full

// Memory for one block of changes while it is encoded.
struct LosslessScratch {
  uint16_t gaps[kLosslessBlock];
  uint16_t places[kLosslessBlock];
  uint32_t changes[kLosslessBlock];  // the sign in bit 0, above it the magnitude less 1
};

inline constexpr uint64_t kLosslessStep = 0x9e3779b97f4a7c15;
// SplitMix64's finalizer (Steele, Lea and Flood, 2014): every bit of the result depends on all of
// the word.
constexpr uint64_t LosslessMix(uint64_t word) {
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
  word = (word ^ word >> 27) * 0x94d049bb133111eb;
  return word ^ word >> 31;
}

// Bytes that may be written, or read, behind those of a block.
inline constexpr size_t kLosslessSlack = 8;

#define ONEBIT_LOSSLESS_DECLARE                                                                   \
  /* Writes the bytes of a block of up to kLosslessBlock elements of 2 or 4 bytes, at most as     \
     many as the elements have, and overwrites kLosslessSlack behind them. */                     \
  LosslessWord LosslessEncode(const void* now, const void* before, size_t count, size_t width,    \
                              LosslessScratch* scratch, uint8_t* out);                            \
  /* Makes `copy`, which is what the block was encoded against, what it was made of. Reads        \
     kLosslessSlack behind the block's bytes. False: they are no block of so many elements, and   \
     some elements of `copy` may have changed. */                                                 \
  bool LosslessDecode(const LosslessWord& word, const uint8_t* bytes, size_t count, size_t width, \
                      void* copy);                                                                \
  /* The sum of LosslessMix(w_i XOR (i + 1) kLosslessStep) over the 64-bit words w_i of some      \
     bytes, the last one padded with zeros. Bytes that differ in few bits, or by distances that   \
     cancel out, have other digests. */                                                           \
  uint64_t LosslessDigest(const void* data, size_t bytes);

ONEBIT_DECLARE_TWICE(ONEBIT_LOSSLESS_DECLARE)

#undef ONEBIT_LOSSLESS_DECLARE

// True if a block of so many elements can have this word.
constexpr bool IsLosslessWord(const LosslessWord& word, size_t count, size_t width) {
  const size_t full = count * width;
  switch (word.form) {
    case LosslessForm::kEqual:
      return word.Pack() == 0;
    case LosslessForm::kGaps:
      return word.gap_bits <= kGapBits && word.change_bits < 8 * width && word.bytes < full;
    case LosslessForm::kBitmap:
      return word.gap_bits == 0 && word.change_bits < 8 * width && word.bytes < full &&
             word.bytes >= (count + 7) / 8;
    case LosslessForm::kElements:
      return word.gap_bits == 0 && word.change_bits == 0 && word.bytes == full;
  }
  return false;
}

}  // namespace onebit::kernels
