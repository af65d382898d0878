// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls with options, through the interposer.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/preload/config_options.h"
#include "tests/preload/preloaded_program.h"

namespace onebit::testing {
namespace {

// Averages of many compressed calls are near the exact ones only if each tensor has its own
// residuals. Without numbers no order could be learnt here.
TEST(PreloadedCallsTest, NumberedTensorsKeepTheirResidualsInAnyOrder) {
  constexpr size_t kCount = 20'000;
  RunNamed("dp", [&](Rank& self) {
    Tensor tensors[] = {{self, 1, kCount}, {self, 2, kCount}};
    std::vector<float> sums[] = {std::vector<float>(kCount), std::vector<float>(kCount)};
    std::mt19937 random(7);  // the same on all ranks
    constexpr int kSteps = 40;
    for (int step = 0; step < kSteps; ++step) {
      const size_t first = random() % 2;
      for (const size_t number : {first, 1 - first}) {
        Options options;
        ASSERT_EQ(tensors[number].AllReduce(self, options.Tensor(number).config()), ncclSuccess);
        EXPECT_EQ(tensors[number].ErrorOfResult(self) > 1e-3, step >= kStart) << step;
        if (step < kStart) continue;
        const std::vector<float> result = tensors[number].Result(self);
        for (size_t i = 0; i < kCount; ++i) sums[number][i] += result[i] / (kSteps - kStart);
      }
    }
    for (const size_t number : {0, 1}) {
      EXPECT_LT(RelativeError(sums[number], tensors[number].average()), 0.02) << number;
    }
  });
}

TEST(PreloadedCallsTest, AProgramChoosesTheCodecOfACall) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 900);  // too short for the rule
    for (int step = 0; step < 6; ++step) {
      Options int8;
      Options fp4;
      int8.Tensor(1).Codec("int8,plain,start=0");
      fp4.Tensor(1).Codec("fp4,plain,start=0");
      ASSERT_EQ(tensor.AllReduce(self, step < 3 ? int8.config() : fp4.config()), ncclSuccess);
      const double error = tensor.ErrorOfResult(self);
      EXPECT_GT(error, step < 3 ? 1e-4 : 0.05) << step;
      EXPECT_LT(error, step < 3 ? 0.05 : 0.3) << step;
    }
  });
}

TEST(PreloadedCallsTest, AProgramKeepsACallExact) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    for (int step = 0; step < 9; ++step) {
      Options options;
      options.Tensor(1);
      const bool is_off = step % 3 == 1;
      if (is_off) options.Off();
      ASSERT_EQ(tensor.AllReduce(self, options.config()), ncclSuccess);
      // A call that is off is none of the first two, which start=2 keeps exact.
      EXPECT_EQ(tensor.ErrorOfResult(self) > 1e-3, !is_off && step > kStart) << step;
    }
  });
}

// The calls reach NCCL with the configuration.
TEST(PreloadedCallsTest, ConfigurationsThatAskForMoreAreNccls) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    const uint64_t before = RealCounts().configured;
    self.everybody.arrive_and_wait();
    for (int step = 0; step < 8; ++step) {
      Options options;
      options.Tensor(1).Codec("fp4,start=0").config().maxCTAs = 4;
      ASSERT_EQ(tensor.AllReduce(self, options.config()), ncclSuccess);
      EXPECT_LT(tensor.ErrorOfResult(self), 1e-6) << step;
    }
    self.everybody.arrive_and_wait();
    EXPECT_EQ(RealCounts().configured - before, 8u * kRanks);
    self.everybody.arrive_and_wait();
  });
}

TEST(PreloadedCallsTest, ConfiguredReduceScattersAreCompressed) {
  RunNamed("dp", [&](Rank& self) {
    const ScatteredTensor tensor(self, 1);
    Options options;
    options.Tensor(1);
    for (int step = 0; step < 4; ++step) {
      ASSERT_EQ(tensor.ReduceScatter(self, &options.config()), ncclSuccess);
      EXPECT_EQ(tensor.ErrorOfResult(self) > 1e-3, step >= kStart) << step;
    }
  });
}

// Configurations are gone when the group ends.
TEST(PreloadedCallsTest, ConfiguredCallsMayBeInAGroup) {
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, 10'000);
    Tensor second(self, 2, 10'000);
    for (int step = 0; step < 5; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (Tensor* const tensor : {&first, &second}) {
        Options options;
        options.Tensor(tensor == &first ? 1 : 2);
        EXPECT_EQ(tensor->AllReduce(self, options.config()), ncclSuccess);
        options.config().size = 0;
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      EXPECT_EQ(first.ErrorOfResult(self) > 1e-3, step >= kStart) << step;
      EXPECT_EQ(second.ErrorOfResult(self) > 1e-3, step >= kStart) << step;
    }
  });
}

// The first call of the group is made when its tensor has ended already.
TEST(PreloadedCallsTest, ANumberMayPassToAnotherTensorWithinAGroup) {
  RunNamed("dp", [&](Rank& self) {
    Tensor first(self, 1, 10'000);
    Tensor second(self, 2, 20'000);
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (Tensor* const tensor : {&first, &second}) {
        Options options;
        options.Tensor(1).Codec("fp4,start=0");
        EXPECT_EQ(tensor->AllReduce(self, options.config()), ncclSuccess);
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
      for (const Tensor* const tensor : {&first, &second}) {
        EXPECT_GT(tensor->ErrorOfResult(self), 1e-3);
        EXPECT_LT(tensor->ErrorOfResult(self), 0.3);
      }
    }
  });
}

TEST(PreloadedCallsTest, WrongOptionsAreInvalidArguments) {
  RunNamed("dp", [&](Rank& self) {
    Tensor tensor(self, 1, 10'000);
    Options options;
    options.Codec("fp5");
    EXPECT_EQ(tensor.AllReduce(self, options.config()), ncclInvalidArgument);
    options.config().ext->val.s = "fp4";
    EXPECT_EQ(tensor.AllReduce(self, options.config()), ncclSuccess);
    EXPECT_LT(tensor.ErrorOfResult(self), 1e-6);
    options.config().magic = 0;
    EXPECT_EQ(tensor.AllReduce(self, options.config()), ncclInvalidArgument);  // NCCL's own answer
  });
}

}  // namespace
}  // namespace onebit::testing
