// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of the codec lossless, one bit at a time.
#include "kernels/lossless.h"

#include <cstring>

namespace onebit::kernels::reference {
namespace {

class BitsOut {
 public:
  explicit BitsOut(uint8_t* out) : out_(out) {}
  void Put(uint32_t number, unsigned bits) {
    for (unsigned k = 0; k < bits; ++k) {
      if (used_ % 8 == 0) out_[used_ / 8] = 0;
      out_[used_ / 8] = static_cast<uint8_t>(out_[used_ / 8] | (number >> k & 1u) << (used_ % 8));
      ++used_;
    }
  }
  void PutCode(uint32_t number, unsigned low_bits, unsigned full_bits) {
    const bool is_escaped = number >> low_bits >= kLosslessEscape;
    Put(0, is_escaped ? kLosslessEscape : number >> low_bits);
    Put(1, 1);
    Put(number, is_escaped ? full_bits : low_bits);
  }

 private:
  uint8_t* out_;
  size_t used_ = 0;
};

class BitsIn {
 public:
  BitsIn(const uint8_t* bytes, size_t count) : bytes_(bytes), left_(8 * count) {}
  // True if nothing follows but the padding of the last byte.
  bool IsAtEnd() const {
    if (left_ >= 8) return false;
    for (size_t k = 0; k < left_; ++k) {
      if (BitAt(at_ + k) != 0) return false;
    }
    return true;
  }
  // False at the end of the bytes.
  bool Take(unsigned bits, uint32_t* number) {
    *number = 0;
    if (bits > left_) return false;
    for (unsigned k = 0; k < bits; ++k) *number |= BitAt(at_ + k) << k;
    at_ += bits;
    left_ -= bits;
    return true;
  }
  bool TakeCode(unsigned low_bits, unsigned full_bits, uint32_t* number) {
    uint32_t zeros = 0;
    for (uint32_t bit = 0; bit == 0;) {
      if (zeros > kLosslessEscape || !Take(1, &bit)) return false;
      if (bit == 0) ++zeros;
    }
    if (zeros >= kLosslessEscape) return Take(full_bits, number);
    if (!Take(low_bits, number)) return false;
    *number |= zeros << low_bits;
    return true;
  }

 private:
  uint32_t BitAt(size_t bit) const { return bytes_[bit / 8] >> (bit % 8) & 1u; }
  const uint8_t* bytes_;
  size_t left_;
  size_t at_ = 0;
};

template <typename Bits>
struct BlockOf {
  static constexpr unsigned kFullBits = 8 * sizeof(Bits);

  static Bits At(const void* elements, size_t i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const uint8_t*>(elements) + i * sizeof(Bits), sizeof(Bits));
    return bits;
  }
  static bool HasChanged(const void* now, const void* before, size_t i) {
    return At(now, i) != At(before, i);
  }
  static LosslessChange ChangeAt(const void* now, const void* before, size_t i) {
    return LosslessChangeOf(At(now, i), At(before, i));
  }

  static LosslessWord Encode(const void* now, const void* before, size_t count, uint8_t* out) {
    size_t changed = 0;
    ForChanges(now, before, count, [&](uint32_t, const LosslessChange&) { ++changed; });
    if (changed == 0) return {};
    const auto narrow_gaps = [&](unsigned bits) {
      size_t narrow = 0;
      ForChanges(now, before, count,
                 [&](uint32_t gap, const LosslessChange&) { narrow += gap >> bits == 0 ? 1 : 0; });
      return narrow;
    };
    const auto narrow_changes = [&](unsigned bits) {
      size_t narrow = 0;
      ForChanges(now, before, count, [&](uint32_t, const LosslessChange& change) {
        narrow += change.number >> bits == 0 ? 1 : 0;
      });
      return narrow;
    };
    LosslessWord word = {.gap_bits = LosslessLowBits(changed, 0, narrow_gaps),
                         .change_bits = LosslessLowBits(changed, 0, narrow_changes)};
    size_t gap_bits = 0;
    size_t change_bits = 0;
    ForChanges(now, before, count, [&](uint32_t gap, const LosslessChange& change) {
      gap_bits += LosslessCodeOf(gap, word.gap_bits, kGapBits).count;
      change_bits += LosslessCodeOf(change, word.change_bits, kFullBits).count;
    });
    word = ShortestForm(word, count, sizeof(Bits), gap_bits, change_bits);
    if (word.form == LosslessForm::kElements) {
      std::memcpy(out, now, word.bytes);
      return word;
    }
    if (word.form == LosslessForm::kBitmap) {
      BitsOut places(out);
      for (size_t i = 0; i < count; ++i) places.Put(HasChanged(now, before, i) ? 1 : 0, 1);
      BitsOut bits(out + (count + 7) / 8);
      ForChanges(now, before, count,
                 [&](uint32_t, const LosslessChange& change) { Put(change, word, &bits); });
      return word;
    }
    BitsOut bits(out);
    ForChanges(now, before, count, [&](uint32_t gap, const LosslessChange& change) {
      bits.PutCode(gap, word.gap_bits, kGapBits);
      Put(change, word, &bits);
    });
    return word;
  }

  static bool Decode(const LosslessWord& word, const uint8_t* bytes, size_t count, void* copy) {
    if (word.form == LosslessForm::kEqual) return true;
    if (word.form == LosslessForm::kElements) {
      std::memcpy(copy, bytes, word.bytes);
      return true;
    }
    if (word.form == LosslessForm::kGaps) {
      BitsIn bits(bytes, word.bytes);
      for (size_t i = 0; !bits.IsAtEnd(); ++i) {
        uint32_t gap = 0;
        if (!bits.TakeCode(word.gap_bits, kGapBits, &gap)) return false;
        i += gap;
        if (i >= count || !Apply(word, &bits, i, copy)) return false;
      }
      return true;
    }
    const size_t bitmap = (count + 7) / 8;
    BitsIn places(bytes, bitmap);
    BitsIn bits(bytes + bitmap, word.bytes - bitmap);
    for (size_t i = 0; i < count; ++i) {
      uint32_t has_changed = 0;
      if (!places.Take(1, &has_changed)) return false;
      if (has_changed != 0 && !Apply(word, &bits, i, copy)) return false;
    }
    return places.IsAtEnd() && bits.IsAtEnd();
  }

 private:
  template <typename Body>
  static void ForChanges(const void* now, const void* before, size_t count, const Body& body) {
    size_t next = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!HasChanged(now, before, i)) continue;
      body(static_cast<uint32_t>(i - next), ChangeAt(now, before, i));
      next = i + 1;
    }
  }
  static void Put(const LosslessChange& change, const LosslessWord& word, BitsOut* bits) {
    bits->Put(change.sign, 1);
    bits->PutCode(change.number, word.change_bits, kFullBits);
  }
  static bool Apply(const LosslessWord& word, BitsIn* bits, size_t i, void* copy) {
    LosslessChange change;
    if (!bits->Take(1, &change.sign) ||
        !bits->TakeCode(word.change_bits, kFullBits, &change.number)) {
      return false;
    }
    const Bits element = LosslessChanged(At(copy, i), change);
    std::memcpy(static_cast<uint8_t*>(copy) + i * sizeof(Bits), &element, sizeof(Bits));
    return true;
  }
};

}  // namespace

LosslessWord LosslessEncode(const void* now, const void* before, size_t count, size_t width,
                            LosslessScratch*, uint8_t* out) {
  return width == 2 ? BlockOf<uint16_t>::Encode(now, before, count, out)
                    : BlockOf<uint32_t>::Encode(now, before, count, out);
}

bool LosslessDecode(const LosslessWord& word, const uint8_t* bytes, size_t count, size_t width,
                    void* copy) {
  if (!IsLosslessWord(word, count, width)) return false;
  return width == 2 ? BlockOf<uint16_t>::Decode(word, bytes, count, copy)
                    : BlockOf<uint32_t>::Decode(word, bytes, count, copy);
}

uint64_t LosslessDigest(const void* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; 8 * i < bytes; ++i) {
    uint64_t word = 0;
    const size_t left = bytes - 8 * i;
    std::memcpy(&word, static_cast<const uint8_t*>(data) + 8 * i, left < 8 ? left : 8);
    sum += LosslessMix(word ^ (i + 1) * kLosslessStep);
  }
  return sum;
}

}  // namespace onebit::kernels::reference
