// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares quotients and roots of the CUDA kernels with the processor's.
#include "kernels/cuda/scale.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

namespace onebit::kernels::cuda {
namespace {

// Covers the sums that a block can have: 2^-100 to 2^128.
float RandomSum(std::mt19937& random) {
  const auto mantissa = static_cast<uint32_t>(random() & 0x7FFFFFu);
  const auto exponent = static_cast<uint32_t>(27 + random() % 228);
  return std::bit_cast<float>(mantissa | exponent << 23);
}

TEST(CudaScaleTest, QuotientsAndRootsAreCorrectlyRounded) {
  std::mt19937 random{7};
  for (int repetition = 0; repetition < 1000000; ++repetition) {
    const double sum = RandomSum(random);
    const auto count =
        static_cast<uint32_t>(1 + random() % (repetition % 8 == 0 ? 0xFFFFFFFEu : 4096u));
    const double mean = sum / count;
    ASSERT_EQ(QuotientOf(sum, count), mean) << sum << " / " << count;
    ASSERT_EQ(RootOf(mean), std::sqrt(mean)) << mean;
  }
}

TEST(CudaScaleTest, EveryCountOfATileDividesExactly) {
  for (uint32_t count = 1; count <= 4096; ++count) {
    for (const double sum : {0.0, 0x1p-100, 1.0, 3.0, 0x1.fffffep127}) {
      ASSERT_EQ(QuotientOf(sum, count), sum / count) << sum << " / " << count;
    }
  }
}

TEST(CudaScaleTest, TheRootOfNothingIsNothing) {
  EXPECT_EQ(RootOf(0.0), 0.0);
  EXPECT_FALSE(std::signbit(RootOf(0.0)));
}

TEST(CudaScaleTest, SinglePrecisionQuotientsAreRoundedOnce) {
  std::mt19937 random{8};
  for (int repetition = 0; repetition < 1000000; ++repetition) {
    const auto ranks = static_cast<uint32_t>(1 + random() % 1024);
    const float t = std::bit_cast<float>(static_cast<uint32_t>(random()) % 0x7F800000u);
    ASSERT_EQ(QuotientOf(t, ranks), t / static_cast<float>(ranks)) << t << " / " << ranks;
  }
}

}  // namespace
}  // namespace onebit::kernels::cuda
