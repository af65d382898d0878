// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ONEBIT_PERF_CLONES before a function: the compiler vectorises its loops, for the best of three
// instruction sets.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define ONEBIT_PERF_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define ONEBIT_PERF_CLONES
#endif
