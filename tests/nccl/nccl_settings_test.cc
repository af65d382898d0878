// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings of transport nccl, and the NCCL that it chooses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/nccl/nccl_plugin.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

const std::string kRelease2_10 = std::string(ONEBIT_NCCL_STAND_INS) + "/libnccl-2.10.so";

onebitTransportProperties Properties(void* context = nullptr) {
  onebitTransportProperties properties{.structSize = sizeof properties};
  EXPECT_EQ(Plugin::functions().getProperties(context, &properties), onebitSuccess);
  return properties;
}

TEST(NcclSettingsTest, SaysWhatItIsWithoutAStart) {
  const onebitTransportProperties properties = Properties();
  EXPECT_STREQ(properties.name, "nccl");
  EXPECT_EQ(properties.hasFrameFace, 0);
  EXPECT_EQ(properties.hasStreamFace, 1);
  EXPECT_EQ(properties.eagerBytes, 0u);
  EXPECT_EQ(properties.survivesLoss, 1);
}

TEST(NcclSettingsTest, DeclaresWhichValuesThereAre) {
  for (const SettingTexts& settings : {SettingTexts{{"ONEBIT_NCCL_NATIVE_DENSE", "2"}},
                                       SettingTexts{{"ONEBIT_NCCL_BLOCKING", "yes"}},
                                       SettingTexts{{"ONEBIT_NCCL_CLOSE_MS", "600001"}}}) {
    const Plugin plugin(settings);
    EXPECT_EQ(plugin.start_result(), onebitInvalidUsage);
    const auto& [name, value] = *settings.begin();
    EXPECT_THAT(Plugin::warnings(), HasSubstr(name + ": \"" + value + "\" is not "));
  }
}

TEST(NcclSettingsTest, HasNativeDenseUnlessItIsRefused) {
  const Plugin plugin(SettingTexts{{"ONEBIT_NCCL_LIB", kRelease2_10}});
  ASSERT_EQ(plugin.start_result(), onebitSuccess) << Plugin::warnings();
  EXPECT_EQ(Properties(plugin.transport_context()).nativeDense, 1);
  const Plugin other(
      SettingTexts{{"ONEBIT_NCCL_NATIVE_DENSE", "0"}, {"ONEBIT_NCCL_LIB", kRelease2_10}});
  ASSERT_EQ(other.start_result(), onebitSuccess) << Plugin::warnings();
  EXPECT_EQ(Properties(other.transport_context()).nativeDense, 0);
}

TEST(NcclSettingsTest, RefusesAnOldRelease) {
  const std::string file = std::string(ONEBIT_NCCL_STAND_INS) + "/libnccl-2.9.so";
  const Plugin plugin(SettingTexts{{"ONEBIT_NCCL_LIB", file}});
  EXPECT_EQ(plugin.start_result(), onebitSystemError);
  EXPECT_THAT(Plugin::warnings(),
              HasSubstr(file + " is NCCL 2.9.6, but 2.10 is the oldest that can be used"));
}

TEST(NcclSettingsTest, RefusesAFileThatIsNotThere) {
  const Plugin plugin(SettingTexts{{"ONEBIT_NCCL_LIB", "/nowhere/libnccl.so.2"}});
  EXPECT_EQ(plugin.start_result(), onebitSystemError);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("/nowhere/libnccl.so.2"));
}

TEST(NcclSettingsTest, RefusesAFileThatIsNotNccl) {
  const Plugin plugin(SettingTexts{{"ONEBIT_NCCL_LIB", ONEBIT_NCCL_PLUGIN}});
  EXPECT_EQ(plugin.start_result(), onebitSystemError);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("is not NCCL: it has no ncclGetVersion"));
}

TEST(NcclSettingsTest, NeedsADriverForAnEndpointOnly) {
  const Plugin plugin(SettingTexts{{"ONEBIT_NCCL_LIB", kRelease2_10}});
  ASSERT_EQ(plugin.start_result(), onebitSuccess) << Plugin::warnings();
  const onebitTransportCommInfo info{.structSize = sizeof info, .rank = 0, .nranks = 1};
  void* comm = nullptr;
  EXPECT_EQ(Plugin::functions().open(plugin.transport_context(), &info, &comm),
            onebitUnhandledCudaError);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("rank 0: there is no GPU to use: the process has not "
                                            "loaded the CUDA driver (libcuda.so.1)"));
}

}  // namespace
}  // namespace onebit::testing
