// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ceilings for any processor of this architecture, and the choice between the two sets.
#include "perf/codec_perf_ceiling.h"

#include "perf/codec_perf_ceiling-inl.h"

namespace onebit::perf {

CeilingPasses CeilingPassesOf(Shape shape) {
#if ONEBIT_PERF_HAVE_AVX512
  if (__builtin_cpu_supports("avx512f")) return Avx512CeilingPassesOf(shape);
#endif
  return PassesOf(shape);
}

}  // namespace onebit::perf
