// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Seeded data and comparison by bytes.
#include "perf/common/seeded_elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace onebit::perf {
namespace {

constexpr onebitDataType_t kFloats[] = {onebitFloat16, onebitFloat32, onebitFloat64,
                                        onebitBfloat16};

TEST(ElementsTest, NamesAreThoseOfNcclTests) {
  EXPECT_EQ(TypeName(onebitFloat16), "half");
  EXPECT_EQ(TypeName(onebitBfloat16), "bfloat16");
  EXPECT_EQ(TypeName(onebitFloat64), "double");
  EXPECT_EQ(TypeName(onebitUint8), "uint8");
  EXPECT_EQ(OpName(onebitAvg), "avg");
  EXPECT_EQ(OpName(onebitMin), "min");
}

TEST(ElementsTest, SeededDataIsNearlyNormal) {
  constexpr size_t kCount = 100'000;
  for (onebitDataType_t type : kFloats) {
    std::vector<std::byte> data(kCount * ElementBytes(type));
    FillSeeded(data.data(), kCount, type, 1, 0);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double value = ElementAt(data.data(), type, i);
      ASSERT_LT(std::abs(value), 4);
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum / kCount, 0, 0.02);
    EXPECT_NEAR(squares / kCount, 1, 0.02);
  }
}

TEST(ElementsTest, SeedRankAndNothingElseDecideTheData) {
  const auto filled = [](uint64_t seed, int rank) {
    std::vector<float> data(64);
    FillSeeded(data.data(), data.size(), onebitFloat32, seed, rank);
    return data;
  };
  EXPECT_EQ(filled(3, 1), filled(3, 1));
  EXPECT_NE(filled(3, 1), filled(3, 2));
  EXPECT_NE(filled(3, 1), filled(4, 1));
}

TEST(ElementsTest, InputsAreWhatIsFilledIn) {
  constexpr size_t kCount = 1000;
  for (const onebitDataType_t type : {onebitUint8, onebitInt32, onebitInt64, onebitFloat16,
                                      onebitFloat32, onebitFloat64, onebitBfloat16}) {
    std::vector<std::byte> data(kCount * ElementBytes(type));
    FillSeeded(data.data(), kCount, type, 5, 2);
    const SeededInput input(type, 5, 2);
    bool has_large = false;
    for (size_t i = 0; i < kCount; ++i) {
      const double value = ElementAt(data.data(), type, i);
      ASSERT_EQ(value, input.At(i)) << TypeName(type);
      has_large = has_large || value > 100;
      EXPECT_TRUE(!IsInteger(type) || value == std::trunc(value));
    }
    EXPECT_EQ(has_large, IsInteger(type)) << TypeName(type);
  }
}

TEST(ElementsTest, DifferencesAreBytesNotValues) {
  const float a[] = {1, 0.0f, 3, NAN};
  const float b[] = {1, -0.0f, 4, NAN};
  const Difference difference = CompareElements(a, b, 4, onebitFloat32);
  EXPECT_EQ(difference.count, 2u);
  EXPECT_EQ(difference.first, 1u);
  EXPECT_EQ(CompareElements(a, a, 4, onebitFloat32).count, 0u);
  EXPECT_EQ(CompareElements(nullptr, nullptr, 0, onebitFloat16).count, 0u);
}

}  // namespace
}  // namespace onebit::perf
