// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Random choices that are the same on every rank, because they are a function of two numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace onebit::soak {

// SplitMix64: each number is a hash of a counter.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : counter_(Mix(Mix(seed) ^ stream)) {}

  uint64_t Next() { return Mix(counter_ += 0x9e3779b97f4a7c15u); }

  // Returns a number below `limit`, which is not 0, with a bias below limit / 2^64.
  uint64_t Below(uint64_t limit) { return Next() % limit; }

  bool Chance(double probability) { return Unit() < probability; }

  // Returns a number from 0 to `most`; all powers of two are about equally likely.
  size_t LogUniform(size_t most) {
    const double size = std::exp(Unit() * std::log(static_cast<double>(most) + 2)) - 1;
    return static_cast<size_t>(size) < most ? static_cast<size_t>(size) : most;
  }

  // Returns one of `values`.
  template <class Values>
  auto OneOf(const Values& values) {
    return *(std::begin(values) + static_cast<std::ptrdiff_t>(Below(std::size(values))));
  }

 private:
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  uint64_t counter_;
};

}  // namespace onebit::soak
