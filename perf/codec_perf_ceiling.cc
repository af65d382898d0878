// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ceilings for any processor of this architecture, and the choice between the two sets.
#include "codec_perf_ceiling.h"

#include "codec_perf_ceiling-inl.h"

namespace onebit::perf {

CeilingPass CeilingPassOf(Shape shape, Store store) {
#if ONEBIT_PERF_HAVE_AVX512
  if (__builtin_cpu_supports("avx512f")) return Avx512CeilingPassOf(shape, store);
#endif
  return PassOf(shape, store);
}

}  // namespace onebit::perf
