// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs a kernel under IEEE defaults, independent of the caller's settings: round to nearest even,
// denormals kept, no traps.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace onebit::kernels::reference {

// Saves the floating-point control register, sets the defaults, restores. Restoring also drops the
// exception flags that the kernel raised. Arithmetic must not be inlined next to it: see
// CallKernel; SIMD kernels are called through Highway's table of function pointers.
class FpEnvironment {
 public:
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

#if defined(__x86_64__) || defined(__i386__)
  FpEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaults); }
  ~FpEnvironment() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kDefaults = 0x1F80;  // all exceptions masked, everything else 0
  unsigned saved_;
#elif defined(__aarch64__)
  FpEnvironment() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_) : : "memory");
    asm volatile("mrs %0, fpsr" : "=r"(saved_flags_) : : "memory");
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
  }
  ~FpEnvironment() {
    asm volatile("msr fpcr, %0" : : "r"(saved_) : "memory");
    asm volatile("msr fpsr, %0" : : "r"(saved_flags_) : "memory");
  }

 private:
  uint64_t saved_;
  uint64_t saved_flags_;  // in a register of their own, unlike on x86
#else
  FpEnvironment() {}
  ~FpEnvironment() {}
#endif
};

// The compiler does not know that arithmetic depends on the control register and could move it past
// the guard; it cannot move it out of a function that it must not inline.
template <class Kernel>
[[gnu::noinline]] auto CallKernel(const Kernel& kernel) {
  return kernel();
}

template <class Kernel>
auto InDefaultFpEnvironment(const Kernel& kernel) {
  const FpEnvironment environment;
  return CallKernel(kernel);
}

}  // namespace onebit::kernels::reference
