// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of the codec lossless: each is the work of one warp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bytes-inl.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"
#include "kernels/lossless.h"

namespace onebit::kernels::cuda {

// Calls body(changed, group, gaps, changes) for each group of kLanes elements that has changes. Bit
// `lane` of `changed` says that element group + lane differs; gaps and changes are those of such
// lanes.
template <class Bits, class Body>
ONEBIT_KERNEL void ForEachChangedGroup(const Warp& warp, const Bits* now, const Bits* before,
                                       uint32_t count, const Body& body) {
  uint32_t next = 0;  // the element behind the last change
  for (uint32_t begin = 0; begin < count; begin += kGroup) {
    Lanes<Quad<Bits>> is;
    Lanes<Quad<Bits>> was;
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        const uint32_t i = begin + c * kLanes + lane;
        is[lane].at[c] = i < count ? now[i] : Bits{0};
        was[lane].at[c] = i < count ? before[i] : Bits{0};
      }
    });
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      const uint32_t group = begin + c * kLanes;
      Lanes<bool> differs;
      warp.ForEachLane([&](unsigned lane) { differs[lane] = is[lane].at[c] != was[lane].at[c]; });
      const uint32_t changed = warp.Ballot(differs);
      if (changed == 0) continue;
      Lanes<uint32_t> gaps;
      Lanes<LosslessChange> changes;
      warp.ForEachLane([&](unsigned lane) {
        if (!differs[lane]) return;
        const uint32_t below = changed & ((uint32_t{1} << lane) - 1);
        const uint32_t behind = below == 0 ? next : group + kLanes - ZerosAbove(below);
        gaps[lane] = group + lane - behind;
        changes[lane] = LosslessChangeOf(is[lane].at[c], was[lane].at[c]);
      });
      next = group + kLanes - ZerosAbove(changed);
      body(changed, group, gaps, changes);
    }
  }
}

// A histogram of numbers below 2^31 by the bits that they need.
class NumberWidths {
 public:
  // Adds the numbers of the lanes whose bits are set. Lane w counts those that need w bits: the
  // lanes whose widths have the same bits as w.
  template <class NumberOf>
  ONEBIT_KERNEL void Add(const Warp& warp, uint32_t lanes, const NumberOf& number_of) {
    Lanes<uint32_t> widths;
    Lanes<uint32_t> same;
    warp.ForEachLane([&](unsigned lane) {
      const uint32_t number = number_of(lane);
      widths[lane] = number == 0 ? 0 : 32 - ZerosAbove(number);
      same[lane] = lanes;
    });
    ONEBIT_UNROLL
    for (unsigned bit = 0; bit < 5; ++bit) {
      Lanes<bool> has_bit;
      warp.ForEachLane([&](unsigned lane) { has_bit[lane] = (widths[lane] >> bit & 1) != 0; });
      const uint32_t with_bit = warp.Ballot(has_bit);
      warp.ForEachLane(
          [&](unsigned lane) { same[lane] &= (lane >> bit & 1) != 0 ? with_bit : ~with_bit; });
    }
    warp.ForEachLane([&](unsigned lane) { counts_[lane] += BitsSetIn(same[lane]); });
  }

  // LosslessLowBits of all that were added.
  ONEBIT_KERNEL unsigned LowBits(const Warp& warp, uint32_t numbers) const {
    const Lanes<uint32_t> narrow = SumsUpTo(warp, counts_);
    Lanes<bool> is_enough;
    warp.ForEachLane(
        [&](unsigned lane) { is_enough[lane] = AreEnoughNarrow(narrow[lane], numbers); });
    return ZerosBelow(warp.Ballot(is_enough));
  }

 private:
  Lanes<uint32_t> counts_;
};

template <class Bits>
ONEBIT_KERNEL LosslessWord MeasureBlock(const Warp& warp, const Bits* now, const Bits* before,
                                        uint32_t count) {
  NumberWidths gap_widths;
  NumberWidths change_widths;
  uint32_t changes_in_block = 0;
  ForEachChangedGroup(
      warp, now, before, count,
      [&](uint32_t changed, uint32_t, const auto& gaps, const auto& changes) ONEBIT_INLINE {
        changes_in_block += BitsSetIn(changed);
        gap_widths.Add(warp, changed, [&](unsigned lane) { return gaps[lane]; });
        change_widths.Add(warp, changed, [&](unsigned lane) { return changes[lane].number; });
      });
  if (changes_in_block == 0) return {};
  LosslessWord choice;
  choice.gap_bits = gap_widths.LowBits(warp, changes_in_block);
  choice.change_bits = change_widths.LowBits(warp, changes_in_block);
  Lanes<uint32_t> gap_bits;
  Lanes<uint32_t> change_bits;
  ForEachChangedGroup(
      warp, now, before, count,
      [&](uint32_t changed, uint32_t, const auto& gaps, const auto& changes) ONEBIT_INLINE {
        warp.ForEachLane([&](unsigned lane) {
          if ((changed >> lane & 1) == 0) return;
          gap_bits[lane] += LosslessCodeOf(gaps[lane], choice.gap_bits, kGapBits).count;
          change_bits[lane] +=
              LosslessCodeOf(changes[lane], choice.change_bits, 8 * sizeof(Bits)).count;
        });
      });
  return ShortestForm(choice, count, sizeof(Bits), SumOf(warp, gap_bits), SumOf(warp, change_bits));
}

// ORs bits into an array of words, from its bit `at` on.
ONEBIT_KERNEL void PutBits(uint32_t* words, uint64_t at, uint64_t bits) {
  const unsigned shift = at % 32;
  const uint64_t rest = bits >> (32 - shift);
  const uint32_t parts[3] = {static_cast<uint32_t>(bits << shift), static_cast<uint32_t>(rest),
                             static_cast<uint32_t>(rest >> 32)};
  ONEBIT_UNROLL
  for (unsigned k = 0; k < 3; ++k) {
    if (parts[k] != 0) AtomicOr(words + at / 32 + k, parts[k]);
  }
}

// Writes a block's bytes from bit `at` of `bytes` on.
template <class Bits>
ONEBIT_KERNEL void WriteBlock(const Warp& warp, const Bits* now, const Bits* before, uint32_t count,
                              const LosslessWord& word, uint32_t* bytes, uint64_t at) {
  constexpr unsigned kFullBits = 8 * sizeof(Bits);
  if (word.form == LosslessForm::kEqual) return;
  if (word.form == LosslessForm::kElements) {
    for (uint32_t begin = 0; begin < count; begin += kLanes) {
      warp.ForEachLane([&](unsigned lane) {
        const uint32_t i = begin + lane;
        if (i < count) PutBits(bytes, at + uint64_t{kFullBits} * i, now[i]);
      });
    }
    return;
  }
  const bool has_gaps = word.form == LosslessForm::kGaps;
  const uint64_t bitmap = at;
  if (!has_gaps) at += (count + 7) / 8 * 8;
  ForEachChangedGroup(
      warp, now, before, count,
      [&](uint32_t changed, uint32_t group, const auto& gaps, const auto& changes) ONEBIT_INLINE {
        if (!has_gaps) warp.Once([&] { PutBits(bytes, bitmap + group, changed); });
        Lanes<LosslessCode> gap_codes;
        Lanes<LosslessCode> change_codes;
        Lanes<uint32_t> lengths;
        warp.ForEachLane([&](unsigned lane) {
          if ((changed >> lane & 1) == 0) return;
          if (has_gaps) gap_codes[lane] = LosslessCodeOf(gaps[lane], word.gap_bits, kGapBits);
          change_codes[lane] = LosslessCodeOf(changes[lane], word.change_bits, kFullBits);
          lengths[lane] = gap_codes[lane].count + change_codes[lane].count;
        });
        const Lanes<uint32_t> ends = SumsUpTo(warp, lengths);
        warp.ForEachLane([&](unsigned lane) {
          const uint64_t begin = at + ends[lane] - lengths[lane];
          PutBits(bytes, begin, gap_codes[lane].bits);
          PutBits(bytes, begin + gap_codes[lane].count, change_codes[lane].bits);
        });
        at += warp.Broadcast(ends, kLanes - 1);
      });
}

// Bits [at, end) of an array of words, read one after the other. Reads up to 8 bytes behind them.
class BitsIn {
 public:
  ONEBIT_KERNEL BitsIn(const uint32_t* words, uint64_t at, uint64_t end)
      : words_(words), at_(at), end_(end) {}

  ONEBIT_KERNEL uint64_t at() const { return at_; }
  ONEBIT_KERNEL uint64_t left() const { return end_ - at_; }
  // The next 32 bits, with zeros behind the end.
  ONEBIT_KERNEL uint32_t Next() const {
    if (left() == 0) return 0;
    const uint32_t* const word = words_ + at_ / 32;
    const auto bits = static_cast<uint32_t>((uint64_t{word[1]} << 32 | word[0]) >> at_ % 32);
    return left() >= 32 ? bits : bits & ((uint32_t{1} << left()) - 1);
  }
  ONEBIT_KERNEL void Skip(uint64_t bits) { at_ += bits; }
  // True if nothing follows but the padding of the last byte.
  ONEBIT_KERNEL bool IsAtEnd() const { return left() < 8 && Next() == 0; }
  // False at the end of the bits.
  ONEBIT_KERNEL bool Take(unsigned bits, uint32_t* number) {
    if (bits > left()) return false;
    *number = bits == 32 ? Next() : Next() & ((uint32_t{1} << bits) - 1);
    at_ += bits;
    return true;
  }
  ONEBIT_KERNEL bool TakeCode(unsigned low_bits, unsigned full_bits, uint32_t* number) {
    const uint32_t next = Next();
    const unsigned zeros = next == 0 ? kLosslessEscape + 1 : ZerosBelow(next);
    if (zeros > kLosslessEscape) return false;
    at_ += zeros + 1;
    if (zeros == kLosslessEscape) return Take(full_bits, number);
    if (!Take(low_bits, number)) return false;
    *number |= zeros << low_bits;
    return true;
  }

 private:
  const uint32_t* words_;
  uint64_t at_;
  uint64_t end_;
};

// Reads a bitmap up to and including the next bit that is set, the place of which is *place. False
// if there is none.
ONEBIT_KERNEL bool FindPlace(BitsIn* bitmap, uint64_t first_bit, uint64_t* place) {
  while (bitmap->left() != 0) {
    const uint32_t ahead = bitmap->Next();
    if (ahead != 0) {
      bitmap->Skip(ZerosBelow(ahead) + 1);
      *place = bitmap->at() - 1 - first_bit;
      return true;
    }
    bitmap->Skip(Smaller(32, bitmap->left()));
  }
  return false;
}

// Changes a block of elements by what begins at bit `at` of `bytes`. False if that is no such
// block.
template <class Bits>
ONEBIT_KERNEL bool DecodeBlock(const Warp& warp, const LosslessWord& word, const uint32_t* bytes,
                               uint64_t at, uint32_t count, Bits* copy) {
  constexpr unsigned kFullBits = 8 * sizeof(Bits);
  if (!IsLosslessWord(word, count, sizeof(Bits))) return false;
  if (word.form == LosslessForm::kEqual) return true;
  const uint64_t end = at + 8 * uint64_t{word.bytes};
  if (word.form == LosslessForm::kElements) {
    for (uint32_t begin = 0; begin < count; begin += kLanes) {
      warp.ForEachLane([&](unsigned lane) {
        const uint32_t i = begin + lane;
        if (i < count) {
          copy[i] = static_cast<Bits>(BitsIn(bytes, at + uint64_t{kFullBits} * i, end).Next());
        }
      });
    }
    return true;
  }
  const bool has_gaps = word.form == LosslessForm::kGaps;
  const uint64_t bitmap_end = has_gaps ? at : at + (count + 7) / 8 * 8;
  BitsIn bitmap(bytes, at, bitmap_end);
  BitsIn codes(bytes, bitmap_end, end);
  uint64_t next = 0;
  // All lanes read the codes of kLanes changes, then each lane makes one of them.
  for (unsigned found = kLanes; found == kLanes;) {
    Lanes<uint32_t> places;
    Lanes<LosslessChange> changes;
    for (found = 0; found < kLanes; ++found) {
      if (has_gaps ? codes.IsAtEnd() : !FindPlace(&bitmap, at, &next)) break;
      if (has_gaps) {
        uint32_t gap = 0;
        if (!codes.TakeCode(word.gap_bits, kGapBits, &gap)) return false;
        next += gap;
      }
      LosslessChange change;
      if (next >= count || !codes.Take(1, &change.sign) ||
          !codes.TakeCode(word.change_bits, kFullBits, &change.number)) {
        return false;
      }
      warp.ForEachLane([&](unsigned lane) {
        if (lane != found) return;
        places[lane] = static_cast<uint32_t>(next);
        changes[lane] = change;
      });
      ++next;
    }
    warp.ForEachLane([&](unsigned lane) {
      if (lane < found) copy[places[lane]] = LosslessChanged(copy[places[lane]], changes[lane]);
    });
  }
  return codes.IsAtEnd();
}

// Calls body(block, first element, elements in it) for the blocks of this warp.
template <class Body>
ONEBIT_KERNEL void ForEachLosslessBlock(const Warp& warp, const LosslessParams& p,
                                        const Body& body) {
  ForEachRange(warp, p.count, kLosslessBlock, [&](uint64_t begin, uint64_t end) {
    body(begin / kLosslessBlock, begin, static_cast<uint32_t>(end - begin));
  });
}

template <class Bits>
ONEBIT_KERNEL void MeasureBlocks(const Warp& warp, const LosslessParams& p) {
  ForEachLosslessBlock(warp, p, [&](uint64_t block, uint64_t begin, uint32_t count) {
    const LosslessWord word = MeasureBlock(warp, static_cast<const Bits*>(p.elements) + begin,
                                           static_cast<const Bits*>(p.before) + begin, count);
    warp.Once([&] { p.words[block] = word.Pack(); });
  });
}

template <class Bits>
ONEBIT_KERNEL void WriteBlocks(const Warp& warp, const LosslessParams& p) {
  ForEachLosslessBlock(warp, p, [&](uint64_t block, uint64_t begin, uint32_t count) {
    WriteBlock(warp, static_cast<const Bits*>(p.elements) + begin,
               static_cast<const Bits*>(p.before) + begin, count,
               LosslessWord::Unpack(p.words[block]), p.bytes, 8 * p.starts[block]);
  });
}

template <class Bits>
ONEBIT_KERNEL void DecodeBlocks(const Warp& warp, const LosslessParams& p) {
  ForEachLosslessBlock(warp, p, [&](uint64_t block, uint64_t begin, uint32_t count) {
    if (!DecodeBlock(warp, LosslessWord::Unpack(p.words[block]), p.bytes, 8 * p.starts[block],
                     count, static_cast<Bits*>(p.elements) + begin)) {
      AddFaults(warp, p.faults, kFailed);
    }
  });
}

ONEBIT_KERNEL void RunLosslessMeasure(const Warp& warp, const LosslessParams& p) {
  p.width == 2 ? MeasureBlocks<uint16_t>(warp, p) : MeasureBlocks<uint32_t>(warp, p);
}

ONEBIT_KERNEL void RunLosslessWrite(const Warp& warp, const LosslessParams& p) {
  p.width == 2 ? WriteBlocks<uint16_t>(warp, p) : WriteBlocks<uint32_t>(warp, p);
}

ONEBIT_KERNEL void RunLosslessDecode(const Warp& warp, const LosslessParams& p) {
  p.width == 2 ? DecodeBlocks<uint16_t>(warp, p) : DecodeBlocks<uint32_t>(warp, p);
}

ONEBIT_KERNEL void RunLosslessDigest(const Warp& warp, const LosslessDigestParams& p) {
  const auto* const data = static_cast<const std::byte*>(p.data);
  const bool has_words = IsAligned(data, 4);
  Lanes<unsigned long long> sums;
  ForEachRange(warp, p.bytes, kByteTile, [&](uint64_t begin, uint64_t end) {
    for (uint64_t group = begin; group < end; group += 16 * kLanes) {
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t at = group + 16 * lane;
        const Quad<uint32_t> words = LoadWordsUntil(data, at, end, has_words);
        for (unsigned half = 0; half < 2 && at + 8 * half < end; ++half) {
          const uint64_t word = uint64_t{words.at[2 * half + 1]} << 32 | words.at[2 * half];
          sums[lane] += LosslessMix(word ^ (at / 8 + half + 1) * kLosslessStep);
        }
      });
    }
  });
  const unsigned long long sum = SumOf(warp, sums);
  warp.Once([&] { AtomicAdd(p.sum, sum); });
}

}  // namespace onebit::kernels::cuda
