// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Guards every public kernel: IEEE defaults inside, the caller's floating-point control outside.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace onebit::kernels::cpu {

// Sets round to nearest even, denormals kept, no traps; restores the old state, exception flags
// included, at the end of the scope. Arithmetic must not be inlined next to the guard, where a
// compiler could move it out: kernels are called through Highway's table of function pointers.
class DefaultFpScope {
 public:
  DefaultFpScope(const DefaultFpScope&) = delete;
  DefaultFpScope& operator=(const DefaultFpScope&) = delete;

#if defined(__x86_64__) || defined(__i386__)
  DefaultFpScope() : mxcsr_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~DefaultFpScope() { _mm_setcsr(mxcsr_); }

 private:
  unsigned mxcsr_;
#elif defined(__aarch64__)
  DefaultFpScope() {
    asm volatile("mrs %0, fpcr" : "=r"(fpcr_) : : "memory");
    asm volatile("mrs %0, fpsr" : "=r"(fpsr_) : : "memory");
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
  }
  ~DefaultFpScope() {
    asm volatile("msr fpcr, %0" : : "r"(fpcr_) : "memory");
    asm volatile("msr fpsr, %0" : : "r"(fpsr_) : "memory");
  }

 private:
  uint64_t fpcr_;
  uint64_t fpsr_;  // exception flags
#else
  DefaultFpScope() {}
  ~DefaultFpScope() {}
#endif
};

}  // namespace onebit::kernels::cpu
