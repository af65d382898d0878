// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Random numbers as a pure function of (seed, stream, rank, counter), so that no thread's timing
// can change them.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace onebit::train {

/** The use of a sequence of numbers; different streams are independent. */
enum class RandomStream : uint64_t { kParameters = 1, kBatches = 2 };

/** The finaliser of SplitMix64 over a key (Steele, Lea and Flood 2014) serves as the hash. */
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, RandomStream stream, uint64_t rank)
      : key_(Mix(Mix(Mix(seed) + static_cast<uint64_t>(stream)) + rank)) {}

  uint64_t Bits(uint64_t counter) const { return Mix(key_ + counter * kGolden); }

  /**
   * Returns a number in [0, bound), bound < 2^32. Its bias of bound / 2^32 does not matter here.
   */
  uint64_t Below(uint64_t counter, uint64_t bound) const {
    return ((Bits(counter) >> 32) * bound) >> 32;
  }

  /**
   * Returns a sample of the normal distribution with mean 0 and variance 1 (Box and Muller 1958).
   */
  double Normal(uint64_t counter) const {
    const double radius = std::sqrt(-2.0 * std::log(OpenUnit(Bits(2 * counter))));
    return radius * std::cos(2.0 * std::numbers::pi * OpenUnit(Bits(2 * counter + 1)));
  }

 private:
  static constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

  static constexpr uint64_t Mix(uint64_t x) {
    x += kGolden;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  /** Returns the 53 highest bits as a number in (0, 1). */
  static double OpenUnit(uint64_t bits) {
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
  }

  uint64_t key_;
};

}  // namespace onebit::train
