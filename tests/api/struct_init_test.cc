// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// onebitStructInit gives the bytes of the initialiser macros.
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

// The bytes that the library should write, and the structure's name.
struct Expected {
  onebitStruct_t kind;
  std::string name;
  std::vector<unsigned char> bytes;
};

template <typename Structure>
Expected Expect(onebitStruct_t kind, const char* name, const Structure& initial) {
  std::vector<unsigned char> bytes(sizeof(initial));
  std::memcpy(bytes.data(), &initial, sizeof(initial));
  return {kind, name, std::move(bytes)};
}

std::vector<Expected> AllStructures() {
  static constexpr onebitConfig_t kConfig = ONEBIT_CONFIG_INIT;
  static constexpr onebitCommStats_t kCommStats = {.size = sizeof(onebitCommStats_t)};
  static constexpr onebitCompressorConfig_t kCompressorConfig = ONEBIT_COMPRESSOR_CONFIG_INIT;
  static constexpr onebitCompressorStats_t kCompressorStats = {.size =
                                                                   sizeof(onebitCompressorStats_t)};
  static constexpr onebitSyncSchedule_t kSyncSchedule = ONEBIT_SYNC_SCHEDULE_INIT;
  static constexpr onebitPolicyConfig_t kPolicyConfig = ONEBIT_POLICY_CONFIG_INIT;
  static constexpr onebitStepPlan_t kStepPlan = ONEBIT_STEP_PLAN_INIT;
  static constexpr onebitSegment_t kSegment = ONEBIT_SEGMENT_INIT;
  static constexpr onebitOptimizerConfig_t kOptimizerConfig = ONEBIT_OPTIMIZER_CONFIG_INIT;
  static constexpr onebitStepResult_t kStepResult = ONEBIT_STEP_RESULT_INIT;
  static constexpr onebitOptimizerStats_t kOptimizerStats = {.size =
                                                                 sizeof(onebitOptimizerStats_t)};
  static constexpr onebitTrustRatio_t kTrustRatio = ONEBIT_TRUST_RATIO_INIT;
  return {
      Expect(onebitStructConfig, "onebitConfig_t", kConfig),
      Expect(onebitStructCommStats, "onebitCommStats_t", kCommStats),
      Expect(onebitStructCompressorConfig, "onebitCompressorConfig_t", kCompressorConfig),
      Expect(onebitStructCompressorStats, "onebitCompressorStats_t", kCompressorStats),
      Expect(onebitStructSyncSchedule, "onebitSyncSchedule_t", kSyncSchedule),
      Expect(onebitStructPolicyConfig, "onebitPolicyConfig_t", kPolicyConfig),
      Expect(onebitStructStepPlan, "onebitStepPlan_t", kStepPlan),
      Expect(onebitStructSegment, "onebitSegment_t", kSegment),
      Expect(onebitStructOptimizerConfig, "onebitOptimizerConfig_t", kOptimizerConfig),
      Expect(onebitStructStepResult, "onebitStepResult_t", kStepResult),
      Expect(onebitStructOptimizerStats, "onebitOptimizerStats_t", kOptimizerStats),
      Expect(onebitStructTrustRatio, "onebitTrustRatio_t", kTrustRatio),
  };
}

TEST(StructInitTest, GivesTheBytesOfTheMacros) {
  for (const Expected& expected : AllStructures()) {
    std::vector<unsigned char> memory(expected.bytes.size() + 1, 0xee);
    ASSERT_EQ(onebitStructInit(expected.kind, memory.data(), expected.bytes.size()), onebitSuccess)
        << expected.name;
    EXPECT_EQ(memory.back(), 0xee) << expected.name;
    memory.pop_back();
    EXPECT_EQ(memory, expected.bytes) << expected.name;
  }
}

TEST(StructInitTest, RefusesOtherSizes) {
  for (const Expected& expected : AllStructures()) {
    const size_t known = expected.bytes.size();
    for (const size_t size : {size_t{0}, known - 8, known + 8}) {
      std::vector<unsigned char> memory(known + 8, 0xee);
      EXPECT_EQ(onebitStructInit(expected.kind, memory.data(), size), onebitInvalidArgument);
      const std::string text = onebitGetLastError(nullptr);
      EXPECT_THAT(text, HasSubstr("size is " + std::to_string(size)));
      EXPECT_THAT(text, HasSubstr(expected.name + " has " + std::to_string(known)));
      EXPECT_EQ(memory, std::vector<unsigned char>(known + 8, 0xee));
    }
  }
}

TEST(StructInitTest, RefusesUnknownKindsAndNull) {
  onebitConfig_t config;
  const auto unknown = static_cast<onebitStruct_t>(AllStructures().size());
  EXPECT_EQ(onebitStructInit(unknown, &config, sizeof(config)), onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("12"));
  EXPECT_EQ(onebitStructInit(onebitStructConfig, nullptr, sizeof(config)), onebitInvalidArgument);
}

}  // namespace
}  // namespace onebit::testing
