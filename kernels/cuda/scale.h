// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Quotients and square roots without branches. The GPU's own call a subroutine for rare operands,
// and a call is expensive while 4096 elements are in registers. Results are correctly rounded, so
// they equal those of / and sqrt.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/quads.h"

namespace onebit::kernels::cuda {

// Returns 1 / sqrt(x) to about the last bit, for a normal number far from the ends of fp64's range.
// Halving the exponent by integer arithmetic gives 4 bits; every step of Newton's method doubles
// them.
ONEBIT_KERNEL double InverseRoot(double x) {
  double y = std::bit_cast<double>(0x5FE6EB50C7B537A9u - (std::bit_cast<uint64_t>(x) >> 1));
  ONEBIT_UNROLL
  for (int step = 0; step < 4; ++step) {
    const double error = std::fma(-x * y, y, 1.0);
    y = std::fma(0.5 * y, error, y);
  }
  return y;
}

// The remainder of an almost exact root corrects its last bit. For 0 the result is 0.
ONEBIT_KERNEL double RootOf(double x) {
  const double y = InverseRoot(x);
  const double root = x * y;
  return std::fma(std::fma(-root, root, x), 0.5 * y, root);
}

// Returns a / n for an integer n from 1 to 2^32; a is 0 or a normal number far from the ends.
ONEBIT_KERNEL double QuotientOf(double a, uint32_t n) {
  const double divisor = n;
  const double root = InverseRoot(divisor);
  double inverse = root * root;
  inverse = std::fma(std::fma(-divisor, inverse, 1.0), inverse, inverse);
  const double quotient = a * inverse;
  return std::fma(std::fma(-quotient, divisor, a), inverse, quotient);
}

// Divides a finite fp32 number by an integer: rounding to fp64 first makes no difference.
ONEBIT_KERNEL float QuotientOf(float a, uint32_t n) {
  return static_cast<float>(QuotientOf(static_cast<double>(a), n));
}

}  // namespace onebit::kernels::cuda
