// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ceilings with whole-line loads and stores; compiled with -mavx512f.
#include "perf/codec_perf_ceiling-inl.h"

namespace onebit::perf {

CeilingPasses Avx512CeilingPassesOf(Shape shape) { return PassesOf(shape); }

}  // namespace onebit::perf
