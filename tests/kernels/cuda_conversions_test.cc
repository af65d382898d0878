// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 numbers that kernels load and store are those of the oracle. Devices convert by
// instructions of their own, so this is about them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/elements.h"
#include "tests/kernels/cuda_launch.h"

namespace onebit::kernels::cuda {
namespace {

constexpr DataType kHalves[] = {DataType::kF16, DataType::kBf16};

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  return halves;
}

// The momentum of -0 and a gradient, with weights 0 and 1, is the gradient.
TEST(CudaConversionsTest, EveryHalfIsLoadedExactly) {
  const std::vector<uint16_t> halves = AllHalves();
  const std::vector<float> m(halves.size(), -0.0f);
  for (const DataType type : kHalves) {
    std::vector<float> loaded(halves.size());
    Launch(Kernel::kLocalMomentum, LocalMomentumParams{m.data(), halves.data(), type, 1, 0, 1,
                                                       nullptr, halves.size(), loaded.data()});
    for (size_t i = 0; i < halves.size(); ++i) {
      const float expected = reference::LoadElement(halves.data(), type, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(loaded[i])) << "bits " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(loaded[i]), std::bit_cast<uint32_t>(expected))
            << "bits " << i;
      }
    }
  }
}

// Numbers in fp32 around each half and around the midpoint to the next one, where rounding turns.
// None is infinite, because the step below would make a NaN of it.
std::vector<float> NumbersAround(DataType type) {
  const std::vector<uint16_t> halves = AllHalves();
  std::vector<float> numbers;
  for (size_t i = 0; i + 1 < halves.size(); ++i) {
    const float half = reference::LoadElement(halves.data(), type, i);
    const float next = reference::LoadElement(halves.data(), type, i + 1);
    if (!std::isfinite(half)) {
      if (std::isnan(half)) numbers.push_back(half);
      continue;
    }
    // Beyond the largest one rounding turns at half of the step before it.
    const float below = i == 0 ? 0 : reference::LoadElement(halves.data(), type, i - 1);
    const float middle = std::isfinite(next) ? half / 2 + next / 2 : half + (half / 2 - below / 2);
    for (const float number : {half, middle}) {
      for (const float to :
           {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()}) {
        numbers.push_back(std::nextafter(number, to));
      }
    }
    numbers.push_back(middle);
  }
  return numbers;
}

// A step of length 0 leaves x as it is and stores its copy.
TEST(CudaConversionsTest, EveryRoundingToAHalfIsToNearestEven) {
  for (const DataType type : kHalves) {
    std::vector<float> x = NumbersAround(type);
    std::vector<float> m(x.size()), v(x.size(), 1.0f);
    std::vector<uint16_t> copy(x.size());
    const std::vector<float> input(x.size());
    const std::vector<float> before = x;
    AdamUpdate update;
    update.x = x.data();
    update.m = m.data();
    update.v = v.data();
    update.input = input.data();
    update.count = x.size();
    update.copy = copy.data();
    update.copy_type = type;
    Launch(Kernel::kAdamFrozen, update);
    for (size_t i = 0; i < x.size(); ++i) {
      uint16_t expected = 0;
      reference::StoreElement(before[i], type, 0, &expected);
      if (std::isnan(before[i])) {
        ASSERT_TRUE(std::isnan(reference::LoadElement(copy.data(), type, i))) << before[i];
      } else {
        ASSERT_EQ(copy[i], expected) << before[i];
      }
    }
  }
}

}  // namespace
}  // namespace onebit::kernels::cuda
