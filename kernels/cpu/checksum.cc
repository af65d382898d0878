// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The checksum of a payload.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/checksum.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/cpu/vectors-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Loads from any alignment, even below that of a word.
HWY_INLINE VU32 LoadWords(const uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t word;
  memcpy(&word, from, sizeof(word));
  return hn::Set(kU32, word);
#else
  return hn::BitCast(kU32, hn::LoadU(hn::Repartition<uint8_t, DU32>(), from));
#endif
}

constexpr size_t kVectors = 4;
constexpr size_t kRowWords = kVectors * kLanes;
constexpr size_t kRowBytes = kRowWords * sizeof(uint32_t);

// Words are processed in rows of kVectors vectors. Per column, `sum` adds the words and `above`
// adds the sum before each row, so that after R rows a word of row r has been added R - 1 - r times
// to `above`:
//   sum over rows of r * w = (R - 1) * sum - above.
// So multiplications are needed only once, at the end.
Checksum ChecksumOfRows(const uint8_t* from, size_t rows) {
  VU32 sum[kVectors];
  VU32 above[kVectors];
  HWY_UNROLL(4)
  for (size_t k = 0; k < kVectors; ++k) sum[k] = above[k] = hn::Zero(kU32);
  for (size_t row = 0; row < rows; ++row) {
    HWY_UNROLL(4)
    for (size_t k = 0; k < kVectors; ++k) {
      const auto* at = from + row * kRowBytes + k * kLanes * sizeof(uint32_t);
      const VU32 words = LoadWords(at);
      above[k] = hn::Add(above[k], sum[k]);
      sum[k] = hn::Add(sum[k], words);
    }
  }
  Checksum checksum;
  for (size_t k = 0; k < kVectors; ++k) {
    alignas(64) uint32_t column_sum[kLanes];
    alignas(64) uint32_t column_above[kLanes];
    hn::Store(sum[k], kU32, column_sum);
    hn::Store(above[k], kU32, column_above);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t rows_sum = static_cast<uint32_t>(rows - 1) * column_sum[lane];
      const uint32_t row_weighted = rows_sum - column_above[lane];  // sum of r * w
      const auto column = static_cast<uint32_t>(k * kLanes + lane + 1);
      checksum.sum += column_sum[lane];
      checksum.weighted +=
          static_cast<uint32_t>(kRowWords) * row_weighted + column * column_sum[lane];
    }
  }
  return checksum;
}

}  // namespace

Checksum ChecksumOf(const void* data, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  const size_t rows = bytes / kRowBytes;
  // A header of a message is shorter than a row of the longest vectors.
  Checksum checksum = rows == 0 ? Checksum{} : ChecksumOfRows(from, rows);
  const auto add = [&](uint32_t word, size_t index) {
    checksum.sum += word;
    checksum.weighted += static_cast<uint32_t>(index + 1) * word;
  };
  const size_t words = bytes / sizeof(uint32_t);
  for (size_t index = rows * kRowWords; index < words; ++index) {
    uint32_t word;
    memcpy(&word, from + index * sizeof(word), sizeof(word));
    add(word, index);
  }
  if (const size_t rest = bytes % sizeof(uint32_t); rest != 0) {
    uint32_t word = 0;
    memcpy(&word, from + words * sizeof(word), rest);
    add(word, words);
  }
  return checksum;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(ChecksumOf);

// Uses only integers: the floating-point environment does not matter.
Checksum ChecksumOf(const void* data, size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(ChecksumOf)(data, bytes);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
