// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of the codec lossless. Vectors find what has changed; codes, whose lengths follow from one
// another, are written and read by whole words, for which newer processors have better shifts.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lossless.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/lossless.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

namespace {

// Bit k is set if elements i + k differ, for 64 elements.
template <typename Bits>
uint64_t ChangesOf64(const Bits* now, const Bits* before) {
#if HWY_TARGET == HWY_SCALAR
  uint64_t changes = 0;
  for (size_t k = 0; k < 64; ++k) changes |= uint64_t{now[k] != before[k]} << k;
  return changes;
#else
  const hn::ScalableTag<Bits> kBits;
  constexpr size_t kLanes = HWY_LANES(Bits);
  uint64_t changes = 0;
  for (size_t k = 0; k < 64; k += kLanes) {
    const auto differ = hn::Ne(hn::LoadU(kBits, now + k), hn::LoadU(kBits, before + k));
    uint8_t mask[8] = {};
    hn::StoreMaskBits(kBits, differ, mask);
    uint64_t bits = 0;
    memcpy(&bits, mask, sizeof(bits));
    changes |= bits << k;
  }
  return changes;
#endif
}

template <typename Bits>
size_t FindChanges(const Bits* now, const Bits* before, size_t count, uint16_t* places) {
  size_t found = 0;
  const auto add = [&](size_t begin, uint64_t changes) {
    for (; changes != 0; changes &= changes - 1) {
      places[found++] = static_cast<uint16_t>(begin + hwy::Num0BitsBelowLS1Bit_Nonzero64(changes));
    }
  };
  size_t i = 0;
  for (; i + 64 <= count; i += 64) add(i, ChangesOf64(now + i, before + i));
  uint64_t last = 0;
  for (size_t k = 0; i + k < count; ++k) last |= uint64_t{now[i + k] != before[i + k]} << k;
  add(i, last);
  return found;
}

// Writes up to 56 bits at a time, for which a word has room behind 7 that are left.
class BitWriter {
 public:
  explicit BitWriter(uint8_t* out) : out_(out) {}
  void Put(uint64_t bits, unsigned count) {
    word_ |= bits << used_;
    used_ += count;
    std::memcpy(out_, &word_, sizeof(word_));
    const unsigned whole = used_ / 8;
    out_ += whole;
    word_ >>= 8 * whole;
    used_ %= 8;
  }

 private:
  uint8_t* out_;
  uint64_t word_ = 0;
  unsigned used_ = 0;
};

class BitReader {
 public:
  static constexpr unsigned kLeast = 57;  // bits that Look returns, or more
  BitReader(const uint8_t* bytes, size_t count) : bytes_(bytes), end_(8 * count) {}
  size_t left() const { return end_ - at_; }
  uint64_t Look() const {
    uint64_t word;
    std::memcpy(&word, bytes_ + at_ / 8, sizeof(word));
    return word >> (at_ % 8);
  }
  void Skip(size_t bits) { at_ += bits; }
  bool IsAtEnd() const { return left() < 8 && (Look() & ((uint64_t{1} << left()) - 1)) == 0; }
  // Reads the number whose code begins at bit 0 of `word`, which Look has returned. The code may go
  // on behind the last byte: the caller compares `bits` with what is left.
  static bool ReadCode(uint64_t word, unsigned low_bits, unsigned full_bits, uint32_t* number,
                       unsigned* bits) {
    const auto zeros =
        static_cast<unsigned>(hwy::Num0BitsBelowLS1Bit_Nonzero64(word | uint64_t{1} << 63));
    if (HWY_LIKELY(zeros < kLosslessEscape)) {
      *number = static_cast<uint32_t>(word >> (zeros + 1) & ((uint64_t{1} << low_bits) - 1)) |
                zeros << low_bits;
      *bits = zeros + 1 + low_bits;
      return true;
    }
    *number =
        static_cast<uint32_t>(word >> (kLosslessEscape + 1) & ((uint64_t{1} << full_bits) - 1));
    *bits = kLosslessEscape + 1 + full_bits;
    return zeros == kLosslessEscape;
  }

 private:
  const uint8_t* bytes_;
  size_t end_;
  size_t at_ = 0;
};

template <typename Bits>
constexpr unsigned kFullBits = 8 * sizeof(Bits);

// Counts the numbers that have no more than so many bits.
template <typename Number>
size_t Narrow(const Number* numbers, size_t count, unsigned bits) {
  if (bits >= 8 * sizeof(Number)) return count;
  const auto limit = static_cast<Number>((uint64_t{1} << bits) - 1);
  uint32_t narrow = 0;
  for (size_t k = 0; k < count; ++k) narrow += numbers[k] <= limit ? 1 : 0;
  return narrow;
}

// The length of the codes of numbers, which stand above `shift` other bits.
template <typename Number>
size_t BitsOf(const Number* numbers, size_t count, unsigned shift, unsigned low_bits,
              unsigned full_bits) {
  uint32_t bits = 0;
  for (size_t k = 0; k < count; ++k) {
    bits += LosslessCodeOf(uint32_t{numbers[k]} >> shift, low_bits, full_bits).count;
  }
  return bits;
}

template <typename Bits>
LosslessWord EncodeAs(const Bits* now, const Bits* before, size_t count, LosslessScratch* scratch,
                      uint8_t* out) {
  const size_t changed = FindChanges(now, before, count, scratch->places);
  if (changed == 0) return {};
  size_t next = 0;
  for (size_t k = 0; k < changed; ++k) {
    const size_t i = scratch->places[k];
    scratch->gaps[k] = static_cast<uint16_t>(i - next);
    const LosslessChange change = LosslessChangeOf(now[i], before[i]);
    scratch->changes[k] = change.number << 1 | change.sign;
    next = i + 1;
  }
  // Gaps of changes that lie anywhere have a mean of this width.
  const unsigned guess =
      31 - static_cast<unsigned>(__builtin_clz(static_cast<uint32_t>(count / changed)));
  LosslessWord word = {
      .gap_bits = LosslessLowBits(
          changed, guess, [&](unsigned bits) { return Narrow(scratch->gaps, changed, bits); }),
      .change_bits = LosslessLowBits(
          changed, 0, [&](unsigned bits) { return Narrow(scratch->changes, changed, bits + 1); })};
  const size_t gap_bits = BitsOf(scratch->gaps, changed, 0, word.gap_bits, kGapBits);
  const size_t change_bits =
      changed + BitsOf(scratch->changes, changed, 1, word.change_bits, kFullBits<Bits>);
  word = ShortestForm(word, count, sizeof(Bits), gap_bits, change_bits);
  if (word.form == LosslessForm::kElements) {
    std::memcpy(out, now, word.bytes);
    return word;
  }
  const auto change_code = [&](size_t k) {
    const LosslessChange change = {scratch->changes[k] & 1, scratch->changes[k] >> 1};
    return LosslessCodeOf(change, word.change_bits, kFullBits<Bits>);
  };
  if (word.form == LosslessForm::kBitmap) {
    const size_t bitmap = (count + 7) / 8;
    std::memset(out, 0, bitmap);
    BitWriter bits(out + bitmap);
    for (size_t k = 0; k < changed; ++k) {
      const size_t i = scratch->places[k];
      out[i / 8] = static_cast<uint8_t>(out[i / 8] | 1u << (i % 8));
      const LosslessCode code = change_code(k);
      bits.Put(code.bits, code.count);
    }
    return word;
  }
  BitWriter bits(out);
  for (size_t k = 0; k < changed; ++k) {
    const LosslessCode gap = LosslessCodeOf(uint32_t{scratch->gaps[k]}, word.gap_bits, kGapBits);
    const LosslessCode change = change_code(k);
    if (HWY_LIKELY(gap.count + change.count <= 56)) {
      bits.Put(change.bits << gap.count | gap.bits, gap.count + change.count);
    } else {
      bits.Put(gap.bits, gap.count);
      bits.Put(change.bits, change.count);
    }
  }
  return word;
}

// Applies the change whose code is next. Returns its bits, or 0 if it is none.
template <typename Bits>
HWY_INLINE unsigned TakeChange(const LosslessWord& word, uint64_t look, Bits* element) {
  uint32_t number = 0;
  unsigned bits = 0;
  if (!BitReader::ReadCode(look >> 1, word.change_bits, kFullBits<Bits>, &number, &bits)) return 0;
  *element = LosslessChanged(*element, {static_cast<uint32_t>(look & 1), number});
  return bits + 1;
}

template <typename Bits>
bool DecodeGaps(const LosslessWord& word, const uint8_t* bytes, size_t count, Bits* copy) {
  BitReader reader(bytes, word.bytes);
  for (size_t i = 0; !reader.IsAtEnd(); ++i) {
    const uint64_t look = reader.Look();
    uint32_t gap = 0;
    unsigned bits = 0;
    if (!BitReader::ReadCode(look, word.gap_bits, kGapBits, &gap, &bits)) return false;
    i += gap;
    if (bits >= reader.left() || i >= count) return false;
    // Nearly always the same word has the change, too.
    uint32_t number = 0;
    unsigned more = 0;
    uint64_t rest = look >> bits;
    bool is_code =
        BitReader::ReadCode(rest >> 1, word.change_bits, kFullBits<Bits>, &number, &more);
    if (HWY_UNLIKELY(!is_code || bits + 1 + more > BitReader::kLeast)) {
      reader.Skip(bits);
      bits = 0;
      rest = reader.Look();
      is_code = BitReader::ReadCode(rest >> 1, word.change_bits, kFullBits<Bits>, &number, &more);
    }
    if (!is_code || bits + 1 + more > reader.left()) return false;
    reader.Skip(bits + 1 + more);
    copy[i] = LosslessChanged(copy[i], {static_cast<uint32_t>(rest & 1), number});
  }
  return true;
}

template <typename Bits>
bool DecodeBitmap(const LosslessWord& word, const uint8_t* bytes, size_t count, Bits* copy) {
  const size_t bitmap = (count + 7) / 8;
  if (count % 8 != 0 && bytes[bitmap - 1] >> (count % 8) != 0) return false;
  BitReader reader(bytes + bitmap, word.bytes - bitmap);
  for (size_t begin = 0; begin < count; begin += 64) {
    uint64_t changes = 0;
    std::memcpy(&changes, bytes + begin / 8, bitmap - begin / 8 < 8 ? bitmap - begin / 8 : 8);
    for (; changes != 0; changes &= changes - 1) {
      const size_t i = begin + hwy::Num0BitsBelowLS1Bit_Nonzero64(changes);
      const unsigned bits = TakeChange(word, reader.Look(), copy + i);
      if (bits == 0 || bits > reader.left()) return false;
      reader.Skip(bits);
    }
  }
  return reader.IsAtEnd();
}

template <typename Bits>
bool DecodeAs(const LosslessWord& word, const uint8_t* bytes, size_t count, Bits* copy) {
  switch (word.form) {
    case LosslessForm::kEqual:
      return true;
    case LosslessForm::kGaps:
      return DecodeGaps(word, bytes, count, copy);
    case LosslessForm::kBitmap:
      return DecodeBitmap(word, bytes, count, copy);
    case LosslessForm::kElements:
      std::memcpy(copy, bytes, word.bytes);
      return true;
  }
  return false;
}

}  // namespace

LosslessWord LosslessEncode(const void* now, const void* before, size_t count, size_t width,
                            LosslessScratch* scratch, uint8_t* out) {
  return width == 2 ? EncodeAs(static_cast<const uint16_t*>(now),
                               static_cast<const uint16_t*>(before), count, scratch, out)
                    : EncodeAs(static_cast<const uint32_t*>(now),
                               static_cast<const uint32_t*>(before), count, scratch, out);
}

bool LosslessDecode(const LosslessWord& word, const uint8_t* bytes, size_t count, size_t width,
                    void* copy) {
  if (!IsLosslessWord(word, count, width)) return false;
  return width == 2 ? DecodeAs(word, bytes, count, static_cast<uint16_t*>(copy))
                    : DecodeAs(word, bytes, count, static_cast<uint32_t*>(copy));
}

uint64_t LosslessDigest(const void* data, size_t bytes) {
  const auto* const from = static_cast<const uint8_t*>(data);
  uint64_t sum = 0;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<uint64_t> kWords;
  const hn::Repartition<uint8_t, decltype(kWords)> kBytes;
  constexpr size_t kLanes = HWY_LANES(uint64_t);
  using V = hn::Vec<decltype(kWords)>;
  const V first = hn::Set(kWords, 0xbf58476d1ce4e5b9);
  const V second = hn::Set(kWords, 0x94d049bb133111eb);
  const V step = hn::Set(kWords, kLanes * kLosslessStep);
  V place = hn::Mul(hn::Iota(kWords, 1), hn::Set(kWords, kLosslessStep));
  V sums = hn::Zero(kWords);
  for (; 8 * (i + kLanes) <= bytes; i += kLanes) {
    V word = hn::Xor(hn::BitCast(kWords, hn::LoadU(kBytes, from + 8 * i)), place);
    word = hn::Mul(hn::Xor(word, hn::ShiftRight<30>(word)), first);
    word = hn::Mul(hn::Xor(word, hn::ShiftRight<27>(word)), second);
    sums = hn::Add(sums, hn::Xor(word, hn::ShiftRight<31>(word)));
    place = hn::Add(place, step);
  }
  alignas(64) uint64_t lanes[kLanes];
  hn::Store(sums, kWords, lanes);
  for (const uint64_t lane : lanes) sum += lane;
#endif
  for (; 8 * i < bytes; ++i) {
    uint64_t word = 0;
    memcpy(&word, from + 8 * i, bytes - 8 * i < 8 ? bytes - 8 * i : 8);
    sum += LosslessMix(word ^ (i + 1) * kLosslessStep);
  }
  return sum;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(LosslessEncode);
HWY_EXPORT(LosslessDecode);
HWY_EXPORT(LosslessDigest);

LosslessWord LosslessEncode(const void* now, const void* before, size_t count, size_t width,
                            LosslessScratch* scratch, uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(LosslessEncode)(now, before, count, width, scratch, out);
}

bool LosslessDecode(const LosslessWord& word, const uint8_t* bytes, size_t count, size_t width,
                    void* copy) {
  return HWY_DYNAMIC_DISPATCH(LosslessDecode)(word, bytes, count, width, copy);
}

uint64_t LosslessDigest(const void* data, size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(LosslessDigest)(data, bytes);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
