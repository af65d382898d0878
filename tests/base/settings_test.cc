// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

Result<Settings> Parse(std::initializer_list<const char*> environment) {
  return ParseSettings(std::vector<const char*>(environment));
}

void ExpectRefused(const char* entry, const std::string& text) {
  SCOPED_TRACE(entry);
  const auto settings = Parse({"PATH=/bin", entry});
  ASSERT_FALSE(settings.ok());
  EXPECT_EQ(settings.status().code(), Code::kInvalidUsage);
  EXPECT_NE(settings.status().text().find(text), std::string::npos) << settings.status().text();
}

TEST(SettingsTest, EmptyEnvironmentGivesDefaults) {
  auto settings = Parse({});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings.value().debug, LogLevel::kWarn);
  EXPECT_EQ(settings.value().debug_file, "");
  EXPECT_EQ(settings.value().collective_timeout_ms, 600'000u);
  EXPECT_EQ(settings.value().one_exchange_elements, 8192u);
  EXPECT_EQ(settings.value().segment_elements, 262'144u);
  EXPECT_EQ(settings.value().local_eager_bytes, 1024u);
}

TEST(SettingsTest, ValuesAreTaken) {
  auto settings = Parse({"ONEBIT_DEBUG=TRACE", "HOME=/", "ONEBIT_DEBUG_FILE=/tmp/a=b",
                         "ONEBIT_COLLECTIVE_TIMEOUT_MS=1", "ONEBIT_ONE_EXCHANGE_ELEMENTS=0",
                         "ONEBIT_SEGMENT_ELEMENTS=1073741824", "ONEBIT_LOCAL_EAGER_BYTES=0"});
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().debug, LogLevel::kTrace);
  EXPECT_EQ(settings.value().debug_file, "/tmp/a=b");
  EXPECT_EQ(settings.value().collective_timeout_ms, 1u);
  EXPECT_EQ(settings.value().one_exchange_elements, 0u);
  EXPECT_EQ(settings.value().segment_elements, 1'073'741'824u);
  EXPECT_EQ(settings.value().local_eager_bytes, 0u);
}

TEST(SettingsTest, EveryLevelHasAName) {
  const std::pair<const char*, LogLevel> levels[] = {{"ONEBIT_DEBUG=NONE", LogLevel::kNone},
                                                     {"ONEBIT_DEBUG=VERSION", LogLevel::kVersion},
                                                     {"ONEBIT_DEBUG=WARN", LogLevel::kWarn},
                                                     {"ONEBIT_DEBUG=INFO", LogLevel::kInfo}};
  for (const auto& [entry, level] : levels) {
    auto settings = Parse({entry});
    ASSERT_TRUE(settings.ok()) << entry;
    EXPECT_EQ(settings.value().debug, level) << entry;
  }
}

TEST(SettingsTest, NumbersThatDoNotParseAreRefusedWithWhatIsAllowed) {
  for (const char* value : {"", " 5", "5 ", "5s", "-1", "+5", "0x10", "1e3", "5.0", "ten",
                            "99999999999999999999", "0", "86400001"}) {
    const std::string entry = std::string("ONEBIT_COLLECTIVE_TIMEOUT_MS=") + value;
    ExpectRefused(entry.c_str(), std::string("ONEBIT_COLLECTIVE_TIMEOUT_MS: \"") + value +
                                     "\" is not milliseconds, 1 to 86400000");
  }
  ExpectRefused("ONEBIT_SEGMENT_ELEMENTS=63", "elements, 64 to 1073741824");
  ExpectRefused("ONEBIT_ONE_EXCHANGE_ELEMENTS=1048577", "elements, 0 to 1048576");
  ExpectRefused("ONEBIT_LOCAL_EAGER_BYTES=1000000000", "bytes, 0 to ");
}

TEST(SettingsTest, LevelsThatDoNotExistAreRefused) {
  for (const char* value : {"", "warn", "DEBUG", "3", "WARN "}) {
    ExpectRefused((std::string("ONEBIT_DEBUG=") + value).c_str(),
                  "NONE, VERSION, WARN, INFO or TRACE");
  }
}

TEST(SettingsTest, UnknownVariablesAreRefusedByName) {
  for (const char* name : {"ONEBIT_DEBUGG", "ONEBIT_", "ONEBIT_debug", "ONEBIT_TIMEOUT_MS"}) {
    ExpectRefused((std::string(name) + "=1").c_str(),
                  std::string("environment variable ") + name + " is unknown");
  }
  ExpectRefused("ONEBIT_NOTHING", "ONEBIT_NOTHING is unknown");  // no '=' at all
}

TEST(SettingsTest, OtherPeoplesVariablesAreLeftAlone) {
  EXPECT_TRUE(Parse({"ONEBIT=1", "ONEBITS_X=1", "MY_ONEBIT_DEBUG=1", "onebit_debug=1", ""}).ok());
}

}  // namespace
}  // namespace onebit
