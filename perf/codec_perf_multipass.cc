// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "codec_perf_multipass.h"

#include <cmath>
#include <cstring>

// The compiler vectorises each loop, for the best of three instruction sets.
#if defined(__x86_64__) && defined(__GNUC__)
#define ONEBIT_PERF_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define ONEBIT_PERF_CLONES
#endif

namespace onebit::perf {
namespace {

ONEBIT_PERF_CLONES
void Add(const float* __restrict a, const float* __restrict b, float* __restrict sum,
         size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

ONEBIT_PERF_CLONES
float SumOfSquares(const float* __restrict z, size_t count) {
  constexpr size_t kLanes = 64;  // independent sums, so that the loop can be vectorised
  float lanes[kLanes] = {};
  for (size_t i = 0; i < count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += z[i + lane] * z[i + lane];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

ONEBIT_PERF_CLONES
void Signs(const float* __restrict z, uint8_t* __restrict is_negative, size_t count) {
  for (size_t i = 0; i < count; ++i) is_negative[i] = z[i] < 0 ? 1 : 0;
}

ONEBIT_PERF_CLONES
void Scale(const uint8_t* __restrict is_negative, float scale, float* __restrict decoded,
           size_t count) {
  for (size_t i = 0; i < count; ++i) decoded[i] = is_negative[i] != 0 ? -scale : scale;
}

ONEBIT_PERF_CLONES
void Subtract(const float* __restrict a, const float* __restrict b, float* __restrict difference,
              size_t count) {
  for (size_t i = 0; i < count; ++i) difference[i] = a[i] - b[i];
}

// Eight bytes of 0 or 1 at a time: the multiplication gathers their lowest bits in the top byte.
void Pack(const uint8_t* __restrict is_negative, uint8_t* __restrict bits, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    uint64_t bytes;
    memcpy(&bytes, is_negative + i, sizeof(bytes));
    bits[i / 8] = static_cast<uint8_t>((bytes * 0x0102040810204080u) >> 56);
  }
}

}  // namespace

float CompressInSixPasses(const MultiPassBuffers& b) {
  Add(b.input, b.residual_in, b.compensated, b.count);
  const float scale = std::sqrt(SumOfSquares(b.compensated, b.count) / static_cast<float>(b.count));
  Signs(b.compensated, b.is_negative, b.count);
  Scale(b.is_negative, scale, b.decoded, b.count);
  Subtract(b.compensated, b.decoded, b.residual_out, b.count);
  Pack(b.is_negative, b.bits, b.count);
  return scale;
}

}  // namespace onebit::perf
