// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings table as the C API shows it, and settings that reach communicators. main.cc sets
// some.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "onebit/onebit.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

std::map<std::string, onebitSetting_t> AllSettings() {
  std::map<std::string, onebitSetting_t> settings;
  onebitSetting_t setting = {};
  for (int i = 0; onebitGetSetting(i, &setting) == onebitSuccess; ++i) {
    EXPECT_TRUE(settings.emplace(setting.name, setting).second) << setting.name << " twice";
  }
  return settings;
}

TEST(SettingsTableTest, EveryRowIsComplete) {
  const auto settings = AllSettings();
  EXPECT_GE(settings.size(), 6u);
  for (const auto& [name, setting] : settings) {
    EXPECT_TRUE(name.starts_with("ONEBIT_")) << name;
    EXPECT_STRNE(setting.type, "") << name;
    EXPECT_NE(setting.defaultValue, nullptr) << name;
    EXPECT_TRUE(std::string(setting.help).ends_with('.')) << name << " has no sentence";
    const std::string source = setting.source;
    EXPECT_TRUE(source == "default" || source == "environment") << name;
    if (source == "default") {
      EXPECT_STREQ(setting.value, setting.defaultValue) << name;
    }
  }
}

TEST(SettingsTableTest, ValuesOfTheEnvironmentAreShownAsSuch) {
  const auto settings = AllSettings();
  EXPECT_STREQ(settings.at("ONEBIT_ONE_EXCHANGE_ELEMENTS").value, "100");
  EXPECT_STREQ(settings.at("ONEBIT_ONE_EXCHANGE_ELEMENTS").source, "environment");
  EXPECT_STREQ(settings.at("ONEBIT_SEGMENT_ELEMENTS").source, "default");
}

TEST(SettingsTableTest, RowsOfTransportsAreShown) {
  const auto settings = AllSettings();
  const auto row = settings.find("ONEBIT_LOCAL_EAGER_BYTES");
  ASSERT_NE(row, settings.end());
  EXPECT_STREQ(row->second.type, "bytes, 0 to 65536");
  EXPECT_STREQ(row->second.value, "1024");
  EXPECT_STREQ(row->second.source, "default");
}

TEST(SettingsTableTest, OneExchangeLimitReachesCompressors) {
  onebitComm_t comms[2];
  ASSERT_EQ(onebitCommInitAll(comms, 2, nullptr), onebitSuccess);
  const UniqueComm first(comms[0]), second(comms[1]);
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor small = NewCompressor(first.get(), 100, onebitFloat32, config);
  const UniqueCompressor large = NewCompressor(first.get(), 101, onebitFloat32, config);
  EXPECT_EQ(StatsOf(small.get()).exchanges, 1u);
  EXPECT_EQ(StatsOf(large.get()).exchanges, 2u);
}

}  // namespace
}  // namespace onebit::testing
