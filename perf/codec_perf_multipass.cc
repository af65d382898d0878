// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Six passes over memory, vectorised by the compiler, without an allocation: a fair opponent.
#include "perf/codec_perf_multipass.h"

#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "perf/vector_clones.h"

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
void Signs(const float* __restrict z, float* __restrict signs, size_t count) {
  for (size_t i = 0; i < count; ++i) signs[i] = z[i] < 0 ? -1.0f : 1.0f;
}

ONEBIT_PERF_CLONES
void Scale(const float* __restrict signs, float scale, float* __restrict decoded, size_t count) {
  for (size_t i = 0; i < count; ++i) decoded[i] = scale * signs[i];
}

ONEBIT_PERF_CLONES
void Subtract(const float* __restrict a, const float* __restrict b, float* __restrict difference,
              size_t count) {
  for (size_t i = 0; i < count; ++i) difference[i] = a[i] - b[i];
}

void Pack(const float* __restrict signs, uint8_t* __restrict bits, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
#if defined(__x86_64__)
    const int low = _mm_movemask_ps(_mm_loadu_ps(signs + i));
    const int high = _mm_movemask_ps(_mm_loadu_ps(signs + i + 4));
    bits[i / 8] = static_cast<uint8_t>(low | (high << 4));
#else
    unsigned byte = 0;
    for (size_t k = 0; k < 8; ++k) byte |= (signs[i + k] < 0 ? 1u : 0u) << k;
    bits[i / 8] = static_cast<uint8_t>(byte);
#endif
  }
}

}  // namespace

float CompressInSixPasses(const MultiPassBuffers& b) {
  Add(b.input, b.residual_in, b.compensated, b.count);
  const float scale = std::sqrt(SumOfSquares(b.compensated, b.count) / static_cast<float>(b.count));
  Signs(b.compensated, b.signs, b.count);
  Scale(b.signs, scale, b.decoded, b.count);
  Subtract(b.compensated, b.decoded, b.residual_out, b.count);
  Pack(b.signs, b.bits, b.count);
  return scale;
}

}  // namespace onebit::perf
