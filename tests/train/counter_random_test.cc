// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The random numbers of a run.
#include "perf/train_text/counter_random.h"

#include <set>

#include <gtest/gtest.h>

namespace onebit::train {
namespace {

TEST(CounterRandomTest, IsAFunctionOfItsKeyAndCounter) {
  const CounterRandom random(7, RandomStream::kBatches, 2);
  const CounterRandom same(7, RandomStream::kBatches, 2);
  EXPECT_EQ(random.Bits(5), same.Bits(5));
}

TEST(CounterRandomTest, SeedsStreamsAndRanksAreIndependent) {
  std::set<uint64_t> values;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const RandomStream stream : {RandomStream::kParameters, RandomStream::kBatches}) {
      for (uint64_t rank = 0; rank < 8; ++rank) {
        for (uint64_t counter = 0; counter < 32; ++counter, ++count) {
          values.insert(CounterRandom(seed, stream, rank).Bits(counter));
        }
      }
    }
  }
  EXPECT_EQ(values.size(), count);
}

TEST(CounterRandomTest, BelowCoversItsRange) {
  const CounterRandom random(1, RandomStream::kBatches, 0);
  std::set<uint64_t> seen;
  for (uint64_t counter = 0; counter < 1000; ++counter) seen.insert(random.Below(counter, 10));
  EXPECT_EQ(seen.size(), 10U);
  EXPECT_EQ(*seen.rbegin(), 9U);
}

TEST(CounterRandomTest, NormalHasMeanZeroAndVarianceOne) {
  const CounterRandom random(1, RandomStream::kParameters, 0);
  constexpr int kSamples = 100'000;
  double sum = 0, square_sum = 0;
  for (uint64_t counter = 0; counter < kSamples; ++counter) {
    const double sample = random.Normal(counter);
    sum += sample;
    square_sum += sample * sample;
  }
  EXPECT_NEAR(sum / kSamples, 0, 0.02);  // six standard errors
  EXPECT_NEAR(square_sum / kSamples, 1, 0.03);
}

}  // namespace
}  // namespace onebit::train
