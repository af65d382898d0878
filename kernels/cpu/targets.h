// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Selects the instruction sets to compile. Include first: Highway reads the macro.
#pragma once

#include <bit>

// A build with sanitizers leaves out more.
#ifndef ONEBIT_WITHOUT_TARGETS
#define ONEBIT_WITHOUT_TARGETS 0
#endif

// Excludes vectors whose length is unknown at compile time (their processors run NEON or scalar
// code), and x86 sets that gain nothing here over the next lower one.
#define HWY_DISABLED_TARGETS                                                             \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | \
   ONEBIT_WITHOUT_TARGETS)

static_assert(std::endian::native == std::endian::little, "bits and checksums are little-endian");
