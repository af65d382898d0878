// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings table on environments made up here, with the rows of a plugin that does not exist.
#include "base/settings.h"

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

int IsDigit(const char* text) { return *text >= '0' && *text <= '9' && text[1] == '\0'; }

constexpr DeclaredSetting kDeclared[] = {
    {"ONEBIT_CARRIER_SPEED", "digit", "7", "How fast it flies.", IsDigit},
    {"ONEBIT_CARRIER_NAME", "text", "", "What it is called.", nullptr},
};

Result<SettingsTable> Read(std::initializer_list<const char*> environment) {
  return ReadSettings(std::vector<const char*>(environment), kDeclared);
}

Result<Settings> Parse(std::initializer_list<const char*> environment) {
  auto table = Read(environment);
  if (!table.ok()) return table.status();
  return table.value().settings;
}

const SettingRow& RowOf(const SettingsTable& table, std::string_view name) {
  for (const SettingRow& row : table.rows) {
    if (name == row.name) return row;
  }
  throw std::out_of_range(std::string(name));
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
  EXPECT_EQ(settings.value().one_exchange_elements, std::nullopt);  // auto
  EXPECT_EQ(settings.value().compute_threads, std::nullopt);
  EXPECT_EQ(settings.value().segment_elements, 262'144u);
  EXPECT_EQ(settings.value().group_elements, 1'048'576u);
}

TEST(SettingsTest, ValuesAreTaken) {
  auto settings = Parse({"ONEBIT_DEBUG=TRACE", "HOME=/", "ONEBIT_DEBUG_FILE=/tmp/a=b",
                         "ONEBIT_COLLECTIVE_TIMEOUT_MS=1", "ONEBIT_ONE_EXCHANGE_ELEMENTS=0",
                         "ONEBIT_SEGMENT_ELEMENTS=1073741824", "ONEBIT_GROUP_ELEMENTS=0"});
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().debug, LogLevel::kTrace);
  EXPECT_EQ(settings.value().debug_file, "/tmp/a=b");
  EXPECT_EQ(settings.value().collective_timeout_ms, 1u);
  EXPECT_EQ(settings.value().one_exchange_elements, 0u);
  EXPECT_EQ(settings.value().segment_elements, 1'073'741'824u);
  EXPECT_EQ(settings.value().group_elements, 0u);
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
  ExpectRefused("ONEBIT_GROUP_ELEMENTS=1073741825", "elements, 0 to 1073741824");
  ExpectRefused("ONEBIT_ONE_EXCHANGE_ELEMENTS=1048577", "auto, or elements, 0 to 1048576");
  ExpectRefused("ONEBIT_COMPUTE_THREADS=65", "auto, or threads, 0 to 64");
  ExpectRefused("ONEBIT_COMPUTE_THREADS=some", "auto, or threads, 0 to 64");
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

TEST(SettingsTest, TheSecretIsTakenAndShownToNobody) {
  constexpr std::string_view kSecret = "correct horse battery staple";
  const std::string entry = "ONEBIT_SECRET=" + std::string(kSecret);
  const auto table = Read({entry.c_str(), "ONEBIT_SECRET_FILE=/a/path"});
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_EQ(table.value().settings.secret, kSecret);
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_SECRET").value, "(not shown)");
  EXPECT_TRUE(table.value().IsSet("ONEBIT_SECRET"));
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_SECRET_FILE").value, "/a/path");
  for (const SettingRow& row : table.value().rows) {
    EXPECT_EQ(row.value.find("horse"), std::string::npos) << row.name;
  }
  // Nor is it part of an error about something else.
  const auto error = Read({entry.c_str(), "ONEBIT_DEBUG=LOUD"});
  EXPECT_EQ(error.status().text().find("horse"), std::string::npos) << error.status().text();
}

TEST(SettingsTest, WithoutASecretNothingIsShownForIt) {
  const auto table = Read({});
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_SECRET").value, "");
  EXPECT_FALSE(table.value().IsSet("ONEBIT_SECRET"));
}

TEST(SettingsTest, DeclaredRowsFollowTheLibrarysOwn) {
  const auto table = Read({"ONEBIT_CARRIER_SPEED=3"});
  ASSERT_TRUE(table.ok()) << table.status().text();
  const SettingRow& speed = RowOf(table.value(), "ONEBIT_CARRIER_SPEED");
  EXPECT_EQ(speed.value, "3");
  EXPECT_TRUE(speed.is_set);
  EXPECT_TRUE(speed.is_declared);
  EXPECT_STREQ(speed.type, "digit");
  EXPECT_STREQ(speed.default_value, "7");
  EXPECT_STREQ(speed.help, "How fast it flies.");
  const SettingRow& name = RowOf(table.value(), "ONEBIT_CARRIER_NAME");
  EXPECT_EQ(name.value, "");
  EXPECT_FALSE(name.is_set);
  EXPECT_FALSE(RowOf(table.value(), "ONEBIT_DEBUG").is_declared);
}

TEST(SettingsTest, DeclaredValuesAreCheckedByTheirPlugin) {
  ExpectRefused("ONEBIT_CARRIER_SPEED=fast",
                "environment variable ONEBIT_CARRIER_SPEED: \"fast\" is not digit");
  ExpectRefused("ONEBIT_CARRIER_SPEED=", "ONEBIT_CARRIER_SPEED: \"\" is not digit");
  ExpectRefused("ONEBIT_CARRIER_SPED=3", "ONEBIT_CARRIER_SPED is unknown");
  EXPECT_TRUE(Read({"ONEBIT_CARRIER_NAME=any text"}).ok());
}

TEST(SettingsTest, WithoutItsPluginAVariableIsUnknown) {
  const char* const environment[] = {"ONEBIT_CARRIER_SPEED=3"};
  const auto table = ReadSettings(environment);
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.status().text().find("ONEBIT_CARRIER_SPEED is unknown"), std::string::npos);
}

TEST(SettingsTest, ADefaultThatDoesNotParseIsRefused) {
  const DeclaredSetting declared[] = {{"ONEBIT_CARRIER_SPEED", "digit", "", "Speed.", IsDigit}};
  EXPECT_FALSE(ReadSettings({}, declared).ok());
}

TEST(SettingsTest, OneNameIsOneRow) {
  for (const char* name : {"ONEBIT_DEBUG", "ONEBIT_CARRIER_SPEED"}) {
    const DeclaredSetting declared[] = {{"ONEBIT_CARRIER_SPEED", "digit", "7", "Speed.", IsDigit},
                                        {name, "text", "", "Again.", nullptr}};
    const auto table = ReadSettings({}, declared);
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.status().code(), Code::kInvalidUsage);
    EXPECT_EQ(table.status().text(), std::string("the setting ") + name + " is declared twice");
  }
}

TEST(SettingsTest, OtherPeoplesVariablesAreLeftAlone) {
  EXPECT_TRUE(Parse({"ONEBIT=1", "ONEBITS_X=1", "MY_ONEBIT_DEBUG=1", "onebit_debug=1", ""}).ok());
}

}  // namespace
}  // namespace onebit
