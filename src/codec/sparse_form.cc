// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec/sparse_form.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/reference/sparse_values.h"

namespace onebit {
namespace {

using kernels::SparseFormat;
using kernels::SparseValues;
using kernels::reference::kNanMagnitude;
using kernels::reference::kNanValue;

class SparseForm {
 public:
  SparseForm(std::span<const std::byte> packet, const SparseFormat& format, size_t count,
             bool may_be_nan)
      : packet_(packet), format_(format), count_(count), may_be_nan_(may_be_nan) {}

  Status Check() const {
    ONEBIT_TRY(CheckMagnitudes());
    ONEBIT_TRY(
        CheckPadding("magnitudes", format_.MagnitudeBytes(count_), format_.IndexOffset(count_)));
    ONEBIT_TRY(CheckIndices());
    ONEBIT_TRY(CheckPadding("indices", format_.IndexOffset(count_) + format_.IndexBytes(count_),
                            format_.ValueOffset(count_)));
    return CheckValues();
  }

 private:
  size_t selected() const { return format_.Selected(count_); }

  uint16_t MagnitudeAt(size_t i) const {
    uint16_t pattern;
    std::memcpy(&pattern, packet_.data() + i * sizeof(pattern), sizeof(pattern));
    return pattern;
  }

  Status CheckMagnitudes() const {
    const size_t magnitudes = format_.MagnitudeBytes(count_) / sizeof(uint16_t);
    for (size_t i = 0; i < magnitudes; ++i) {
      const uint16_t pattern = MagnitudeAt(i);
      if (pattern < 0x7f80 || (may_be_nan_ && pattern == kNanMagnitude)) continue;
      return Error(Code::kCorrupt, "{} magnitude of block {} is negative or not finite ({:#06x})",
                   i % 2 == 0 ? "high" : "low", i / 2, pattern);
    }
    for (size_t i = 0; i < magnitudes; i += 2) {
      const bool is_nan = MagnitudeAt(i) == kNanMagnitude;
      if (is_nan == (MagnitudeAt(i + 1) == kNanMagnitude)) continue;
      return Error(Code::kCorrupt, "of the magnitudes of block {} only the {} one is NaN", i / 2,
                   is_nan ? "high" : "low");
    }
    return OkStatus();
  }

  Status CheckPadding(const char* what, size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      if (packet_[i] == std::byte{0}) continue;
      return Error(Code::kCorrupt, "padding after {} is not 0 (byte {})", what, i);
    }
    return OkStatus();
  }

  // The unused bits of the last byte of a part.
  Status CheckUnusedBits(const char* what, size_t end, size_t bits) const {
    if (bits % 8 == 0 || std::to_integer<unsigned>(packet_[end - 1]) >> bits % 8 == 0) {
      return OkStatus();
    }
    return Error(Code::kCorrupt, "unused bits after {} are set", what);
  }

  Status CheckIndices() const {
    if (format_.codec.is_random) return OkStatus();
    const auto* const indices =
        reinterpret_cast<const uint8_t*>(packet_.data()) + format_.IndexOffset(count_);
    size_t first = 0;  // among all elements that are sent
    for (size_t begin = 0; begin < count_; begin += format_.block) {
      const size_t length = std::min(format_.block, count_ - begin);
      const size_t end = first + format_.SelectedOfBlock(length);
      size_t least = 0;
      for (size_t j = first; j < end; ++j) {
        const size_t index = kernels::reference::IndexAt(indices, j);
        if (index < least || index >= length) {
          return Error(Code::kCorrupt,
                       "index {} of block {} is {}: indices must ascend and be below {}", j - first,
                       begin / format_.block, index, length);
        }
        least = index + 1;
      }
      first = end;
    }
    return CheckUnusedBits("indices", format_.IndexOffset(count_) + format_.IndexBytes(count_),
                           selected() * kernels::kSparseIndexBits);
  }

  Status CheckValues() const {
    const bool has_magnitudes = format_.codec.values == SparseValues::kTwoMagnitudes;
    size_t first = 0;  // among all elements that are sent
    for (size_t begin = 0; begin < count_; begin += format_.block) {
      const size_t end = first + format_.SelectedOfBlock(std::min(format_.block, count_ - begin));
      const size_t block = begin / format_.block;
      ONEBIT_TRY(has_magnitudes ? CheckCodes(block, first, end) : CheckNumbers(block, first, end));
      first = end;
    }
    if (!has_magnitudes) return OkStatus();
    return CheckUnusedBits("values", packet_.size(), selected() * format_.ValueBits());
  }

  // Codes of a block whose magnitudes are NaN are 0.
  Status CheckCodes(size_t block, size_t first, size_t end) const {
    if (MagnitudeAt(2 * block) != kNanMagnitude) return OkStatus();
    const auto* const codes =
        reinterpret_cast<const uint8_t*>(packet_.data()) + format_.ValueOffset(count_);
    for (size_t j = first; j < end; ++j) {
      const unsigned code = kernels::reference::SparseCodeAt(codes, j);
      if (code == 0) continue;
      return Error(Code::kCorrupt, "code {} of block {}, which is NaN, is {}", j - first, block,
                   code);
    }
    return OkStatus();
  }

  // All values of a block are numbers, or all are NaN.
  Status CheckNumbers(size_t block, size_t first, size_t end) const {
    size_t nans = 0;
    for (size_t j = first; j < end; ++j) {
      uint32_t pattern;
      std::memcpy(&pattern, packet_.data() + format_.ValueOffset(count_) + j * sizeof(pattern),
                  sizeof(pattern));
      if ((pattern & 0x7fff'ffffu) < 0x7f80'0000u) continue;
      if (!may_be_nan_ || pattern != kNanValue) {
        return Error(Code::kCorrupt, "value {} of {} is not finite ({:#010x})", j, selected(),
                     pattern);
      }
      ++nans;
    }
    if (nans == 0 || nans == end - first) return OkStatus();
    return Error(Code::kCorrupt, "{} of {} values of block {} are NaN: all must be, or none", nans,
                 end - first, block);
  }

  const std::span<const std::byte> packet_;
  const SparseFormat& format_;
  const size_t count_;
  const bool may_be_nan_;
};

}  // namespace

Status CheckSparseForm(std::span<const std::byte> packet, const SparseFormat& format, size_t count,
                       bool may_be_nan) {
  return SparseForm(packet, format, count, may_be_nan).Check();
}

}  // namespace onebit
