// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The settings table on invented environments, with the rows of a plugin that does not exist.
#include "base/settings.h"

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

struct FakeValues {
  uint64_t speed;
  const char* name;
  uint64_t is_tame;
  const char* stops;
  uint64_t weather;
};

constexpr Setting kSpeed{.name = "ONEBIT_FAKE_SPEED",
                         .kind = SettingKind::kInteger,
                         .values = "metres a second",
                         .maximum = 9,
                         .default_value = "7",
                         .help = "How fast it flies.",
                         .offset = offsetof(FakeValues, speed)};
constexpr Setting kDeclared[] = {
    kSpeed,
    {.name = "ONEBIT_FAKE_NAME",
     .kind = SettingKind::kText,
     .values = "text",
     .default_value = "",
     .help = "Its name.",
     .offset = offsetof(FakeValues, name)},
    {.name = "ONEBIT_FAKE_TAME",
     .kind = SettingKind::kBoolean,
     .default_value = "1",
     .help = "1: it comes when it is called.",
     .offset = offsetof(FakeValues, is_tame)},
    {.name = "ONEBIT_FAKE_STOPS",
     .kind = SettingKind::kList,
     .values = "list of cities",
     .default_value = "all",
     .help = "Where it may rest.",
     .offset = offsetof(FakeValues, stops)},
    {.name = "ONEBIT_FAKE_WEATHER",
     .kind = SettingKind::kChoice,
     .values = "sun|rain",
     .default_value = "sun",
     .help = "The weather it flies in.",
     .offset = offsetof(FakeValues, weather)},
};

// Texts of the environment must outlive the table, so tests pass literals.
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
  EXPECT_EQ(settings.value().log_level(), LogLevel::kWarn);
  EXPECT_STREQ(settings.value().debug_file, "");
  EXPECT_STREQ(settings.value().trace, "");
  EXPECT_EQ(settings.value().collective_timeout_ms, 600'000u);
  EXPECT_EQ(settings.value().one_exchange_elements, kAuto);
  EXPECT_EQ(settings.value().compute_threads, kAuto);
  EXPECT_EQ(settings.value().segment_elements, 262'144u);
  EXPECT_EQ(settings.value().group_elements, kAuto);
}

TEST(SettingsTest, ValuesAreTaken) {
  auto settings = Parse({"ONEBIT_DEBUG=TRACE", "HOME=/", "ONEBIT_DEBUG_FILE=/tmp/a=b",
                         "ONEBIT_COLLECTIVE_TIMEOUT_MS=1", "ONEBIT_ONE_EXCHANGE_ELEMENTS=0",
                         "ONEBIT_SEGMENT_ELEMENTS=1073741824", "ONEBIT_GROUP_ELEMENTS=0"});
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().log_level(), LogLevel::kTrace);
  EXPECT_STREQ(settings.value().debug_file, "/tmp/a=b");
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
    EXPECT_EQ(settings.value().log_level(), level) << entry;
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
  ExpectRefused("ONEBIT_GROUP_ELEMENTS=1073741825", "auto, or elements, 0 to 1073741824");
  ExpectRefused("ONEBIT_ONE_EXCHANGE_ELEMENTS=1048577", "auto, or elements, 0 to 1048576");
  ExpectRefused("ONEBIT_COMPUTE_THREADS=65", "auto, or threads, 0 to 64");
  for (const char* value : {"some", "autos", "AUTO", ""}) {
    ExpectRefused((std::string("ONEBIT_COMPUTE_THREADS=") + value).c_str(),
                  "auto, or threads, 0 to 64");
  }
}

TEST(SettingsTest, LevelsThatDoNotExistAreRefused) {
  for (const char* value : {"", "warn", "DEBUG", "3", "WARN "}) {
    ExpectRefused((std::string("ONEBIT_DEBUG=") + value).c_str(),
                  "NONE, VERSION, WARN, INFO or TRACE");
  }
}

std::vector<std::string> WarningsOf(const char* entry) {
  const auto table = Read({"PATH=/bin", entry});
  return table.ok() ? table.value().warnings : std::vector{table.status().text()};
}

TEST(SettingsTest, AnUnknownVariableIsAWarningWithTheNearestName) {
  for (const auto& [unknown, nearest] :
       {std::pair{"ONEBIT_DEBUGG", "ONEBIT_DEBUG"}, std::pair{"ONEBIT_DEBGU", "ONEBIT_DEBUG"},
        std::pair{"ONEBIT_debug", "ONEBIT_DEBUG"},
        std::pair{"ONEBIT_SECRET_FIEL", "ONEBIT_SECRET_FILE"},
        std::pair{"ONEBIT_HEART_BEATS_MS", "ONEBIT_HEARTBEAT_MS"},
        std::pair{"ONEBIT_FAKE_SPED", "ONEBIT_FAKE_SPEED"}}) {
    EXPECT_EQ(WarningsOf((std::string(unknown) + "=1").c_str()),
              std::vector{std::string("environment variable ") + unknown +
                          " is unknown and ignored; did you mean " + nearest + "?"});
  }
}

TEST(SettingsTest, TheNearestOfSeveralNamesIsSuggested) {
  const Setting near = kSpeed;
  Setting nearer = kSpeed;
  nearer.name = "ONEBIT_FAKE_SPED";
  for (const auto& rows : {std::vector{near, nearer}, std::vector{nearer, near}}) {
    const char* const environment[] = {"ONEBIT_FAKE_SPEF=1"};
    const auto table = ReadSettings(environment, rows);
    ASSERT_TRUE(table.ok()) << table.status().text();
    EXPECT_EQ(table.value().warnings,
              std::vector<std::string>{"environment variable ONEBIT_FAKE_SPEF is unknown and "
                                       "ignored; did you mean ONEBIT_FAKE_SPED?"});
  }
}

TEST(SettingsTest, NoNameIsSuggestedThatIsNotNear) {
  for (const char* unknown : {"ONEBIT_ROOT", "ONEBIT_INCLUDE", "ONEBIT_", "ONEBIT_DUB",
                              "ONEBIT_TIMEOUT_MS", "ONEBIT_HEARTBEEEEEAT_MS"}) {
    EXPECT_EQ(
        WarningsOf((std::string(unknown) + "=1").c_str()),
        std::vector{std::string("environment variable ") + unknown + " is unknown and ignored"});
  }
  EXPECT_EQ(WarningsOf("ONEBIT_NOTHING"),  // no '=' at all
            std::vector<std::string>{"environment variable ONEBIT_NOTHING is unknown and ignored"});
}

TEST(SettingsTest, EachUnknownVariableHasItsWarning) {
  const auto table = Read({"ONEBIT_ROOT=/", "ONEBIT_DEBUG=INFO", "ONEBIT_LIB=/lib"});
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_EQ(table.value().warnings.size(), 2u);
  EXPECT_EQ(table.value().settings.log_level(), LogLevel::kInfo);
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
  // An error about another variable must not show it either.
  const auto error = Read({entry.c_str(), "ONEBIT_DEBUG=LOUD"});
  EXPECT_EQ(error.status().text().find("horse"), std::string::npos) << error.status().text();
}

TEST(SettingsTest, WithoutASecretNothingIsShownForIt) {
  const auto table = Read({});
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_SECRET").value, "");
  EXPECT_FALSE(table.value().IsSet("ONEBIT_SECRET"));
}

TEST(SettingsTest, DeclaredRowsFollowTheLibrarysOwn) {
  const auto table = Read({"ONEBIT_FAKE_SPEED=3"});
  ASSERT_TRUE(table.ok()) << table.status().text();
  const SettingRow& speed = RowOf(table.value(), "ONEBIT_FAKE_SPEED");
  EXPECT_EQ(speed.value, "3");
  EXPECT_TRUE(speed.is_set);
  EXPECT_EQ(speed.type, "metres a second, 0 to 9");
  EXPECT_STREQ(speed.default_value, "7");
  EXPECT_STREQ(speed.help, "How fast it flies.");
  const SettingRow& name = RowOf(table.value(), "ONEBIT_FAKE_NAME");
  EXPECT_EQ(name.value, "");
  EXPECT_FALSE(name.is_set);
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_FAKE_TAME").type, "0 or 1");
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_FAKE_STOPS").type, "list of cities");
  EXPECT_EQ(RowOf(table.value(), "ONEBIT_FAKE_WEATHER").type, "sun or rain");
  EXPECT_EQ(table.value().warnings, std::vector<std::string>{});
}

TEST(SettingsTest, DeclaredValuesAreCheckedByTheirKind) {
  ExpectRefused("ONEBIT_FAKE_SPEED=fast",
                "environment variable ONEBIT_FAKE_SPEED: \"fast\" is not metres a second, 0 to 9");
  for (const char* value : {"", "10", "18446744073709551616"}) {
    ExpectRefused((std::string("ONEBIT_FAKE_SPEED=") + value).c_str(),
                  std::string("\"") + value + "\" is not metres a second, 0 to 9");
  }
  for (const char* value : {"", "2", "00", "yes"}) {
    ExpectRefused((std::string("ONEBIT_FAKE_TAME=") + value).c_str(), "is not 0 or 1");
  }
  for (const char* value : {"", "Rome;Bern", "New York"}) {
    ExpectRefused((std::string("ONEBIT_FAKE_STOPS=") + value).c_str(), "is not list of cities");
  }
  for (const char* value : {"", "sun|rain", "snow"}) {
    ExpectRefused((std::string("ONEBIT_FAKE_WEATHER=") + value).c_str(), "is not sun or rain");
  }
  ExpectRefused("ONEBIT_TRANSPORT=UCX", "\"UCX\" is not the name of a transport, in lower case");
  ExpectRefused("ONEBIT_TRANSPORT=", "\"\" is not the name of a transport, in lower case");
  EXPECT_TRUE(Read({"ONEBIT_FAKE_NAME=any text"}).ok());
}

TEST(SettingsTest, ValuesAreWrittenToTheirReceiver) {
  const char* const environment[] = {"ONEBIT_FAKE_NAME=any text", "ONEBIT_FAKE_TAME=0",
                                     "ONEBIT_FAKE_STOPS=^Rome,a_b-c.d:1@/",
                                     "ONEBIT_FAKE_WEATHER=rain"};
  FakeValues values;
  ASSERT_TRUE(ReadValues(environment, kDeclared, &values).ok());
  EXPECT_EQ(values.speed, 7u);
  EXPECT_STREQ(values.name, "any text");
  EXPECT_EQ(values.is_tame, 0u);
  EXPECT_STREQ(values.stops, "^Rome,a_b-c.d:1@/");
  EXPECT_EQ(values.weather, 1u);
}

TEST(SettingsTest, AListMayBeEmptyWhereItsDefaultIs) {
  const Setting list{.name = "ONEBIT_FAKE_STOPS",
                     .kind = SettingKind::kList,
                     .values = "list of cities",
                     .default_value = "",
                     .help = "Where it may rest.",
                     .offset = 0};
  const char* const environment[] = {"ONEBIT_FAKE_STOPS="};
  const char* stops = nullptr;
  const Status status = ReadValues(environment, {&list, 1}, &stops);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_STREQ(stops, "");
}

TEST(SettingsTest, WithoutItsPluginAVariableIsUnknown) {
  const char* const environment[] = {"ONEBIT_FAKE_SPEED=3"};
  const auto table = ReadSettings(environment);
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_EQ(table.value().warnings.size(), 1u);
}

TEST(SettingsTest, ADefaultThatDoesNotParseIsRefused) {
  Setting wrong = kSpeed;
  wrong.default_value = "";
  EXPECT_FALSE(ReadSettings({}, {&wrong, 1}).ok());
}

TEST(SettingsTest, OneNameIsOneRow) {
  for (const char* name : {"ONEBIT_DEBUG", "ONEBIT_FAKE_SPEED"}) {
    Setting again = kSpeed;
    again.name = name;
    const Setting declared[] = {kSpeed, again};
    const auto table = ReadSettings({}, declared);
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.status().code(), Code::kInvalidUsage);
    EXPECT_EQ(table.status().text(), std::string("the setting ") + name + " is declared twice");
  }
}

TEST(SettingsTest, OtherPeoplesVariablesAreLeftAlone) {
  const auto table = Read({"ONEBIT=1", "ONEBITS_X=1", "MY_ONEBIT_DEBUG=1", "onebit_debug=1", ""});
  ASSERT_TRUE(table.ok()) << table.status().text();
  EXPECT_EQ(table.value().warnings, std::vector<std::string>{});
}

}  // namespace
}  // namespace onebit
