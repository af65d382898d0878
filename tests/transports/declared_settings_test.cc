// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks of the settings that a transport declares, and of the values that reach it.
#include "transport/declared_settings.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "transport/process_settings.h"
#include "transport/transport.h"

namespace onebit {
namespace {

// The structure that `init` of the transport under test receives.
struct Values {
  uint64_t speed;
  const char* name;
  uint64_t height;
};

constexpr onebitTransportSetting kRows[] = {
    {.name = "ONEBIT_FAKE2_SPEED",
     .kind = onebitSettingInteger,
     .values = "metres a second",
     .minimum = 1,
     .maximum = 30,
     .defaultValue = "12",
     .help = "Speed of flight.",
     .offset = offsetof(Values, speed)},
    {.name = "ONEBIT_FAKE2_NAME",
     .kind = onebitSettingText,
     .values = "name",
     .defaultValue = "",
     .help = "Name of the fake.",
     .offset = offsetof(Values, name)},
    {.name = "ONEBIT_FAKE2_HEIGHT",
     .kind = onebitSettingAutoOrInteger,
     .values = "metres",
     .maximum = 100,
     .defaultValue = "auto",
     .help = "Height of flight.",
     .offset = offsetof(Values, height)},
};

onebitTransportProperties FakeProperties(std::span<const onebitTransportSetting> rows = kRows) {
  return {.structSize = sizeof(onebitTransportProperties),
          .name = "fake2",
          .settings = rows.data(),
          .settingCount = rows.size(),
          .settingsBytes = sizeof(Values)};
}

Result<Values> Read(std::initializer_list<const char*> environment) {
  const std::vector<const char*> entries(environment);
  const auto bytes = SettingsForInit(FakeProperties(), entries);
  if (!bytes.ok()) return bytes.status();
  Values values;
  EXPECT_EQ(bytes.value().size() * sizeof(uint64_t), sizeof values);
  std::memcpy(&values, bytes.value().data(), sizeof values);
  return values;
}

TEST(DeclaredSettingsTest, ValuesAreWrittenWhereTheirRowsSay) {
  const auto values = Read({"ONEBIT_FAKE2_HEIGHT=40", "ONEBIT_FAKE2_NAME=Hermes"});
  ASSERT_TRUE(values.ok()) << values.status().text();
  EXPECT_EQ(values.value().speed, 12u);
  EXPECT_STREQ(values.value().name, "Hermes");
  EXPECT_EQ(values.value().height, 40u);
}

TEST(DeclaredSettingsTest, DefaultsHoldWhereTheEnvironmentIsSilent) {
  const auto values = Read({});
  ASSERT_TRUE(values.ok()) << values.status().text();
  EXPECT_EQ(values.value().speed, 12u);
  EXPECT_STREQ(values.value().name, "");
  EXPECT_EQ(values.value().height, ONEBIT_SETTING_AUTO);
}

TEST(DeclaredSettingsTest, ValuesAreCheckedByTheLibrary) {
  const auto values = Read({"ONEBIT_FAKE2_SPEED=31"});
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.status().code(), Code::kInvalidUsage);
  EXPECT_EQ(values.status().text(),
            "environment variable ONEBIT_FAKE2_SPEED: \"31\" is not metres a second, 1 to 30");
}

TEST(DeclaredSettingsTest, ATransportWithoutSettingsReceivesNone) {
  const auto values = SettingsForInit(FakeProperties({}), {});
  ASSERT_TRUE(values.ok()) << values.status().text();
  EXPECT_TRUE(values.value().empty());
}

TEST(DeclaredSettingsTest, RowsKeepTheirTexts) {
  const auto declared = DeclaredSettings(FakeProperties());
  ASSERT_TRUE(declared.ok()) << declared.status().text();
  ASSERT_EQ(declared.value().size(), 3u);
  EXPECT_STREQ(declared.value()[0].name, "ONEBIT_FAKE2_SPEED");
  EXPECT_STREQ(declared.value()[0].default_value, "12");
  EXPECT_STREQ(declared.value()[0].help, "Speed of flight.");
}

void ExpectRefused(const onebitTransportSetting& row, const std::string& text) {
  const auto declared = DeclaredSettings(FakeProperties({&row, 1}));
  ASSERT_FALSE(declared.ok());
  EXPECT_EQ(declared.status().code(), Code::kInvalidUsage);
  EXPECT_EQ(declared.status().text(), text);
}

TEST(DeclaredSettingsTest, NamesOfOthersAreRefused) {
  for (const char* name : {"ONEBIT_SPEED", "ONEBIT_FAKE_SPEED", "FAKE2_SPEED", "ONEBIT_fake2_SPEED",
                           "ONEBIT_FAKE2SPEED"}) {
    onebitTransportSetting row = kRows[0];
    row.name = name;
    ExpectRefused(row, std::string("transport fake2 declares the setting ") + name +
                           "; its settings must begin with ONEBIT_FAKE2_");
  }
}

TEST(DeclaredSettingsTest, IncompleteRowsAreRefused) {
  for (const char* onebitTransportSetting::*member :
       {&onebitTransportSetting::values, &onebitTransportSetting::defaultValue,
        &onebitTransportSetting::help}) {
    onebitTransportSetting row = kRows[0];
    row.*member = nullptr;
    ExpectRefused(row,
                  "transport fake2 declares the setting ONEBIT_FAKE2_SPEED without values, "
                  "default or help");
  }
}

TEST(DeclaredSettingsTest, KindsOfLaterVersionsAreRefused) {
  for (const int kind : {-1, 8}) {
    onebitTransportSetting row = kRows[0];
    row.kind = kind;
    ExpectRefused(row,
                  "transport fake2 declares the setting ONEBIT_FAKE2_SPEED with the unknown "
                  "kind " +
                      std::to_string(kind));
  }
}

TEST(DeclaredSettingsTest, PlacesOutsideOfTheStructureAreRefused) {
  for (const size_t offset : {size_t{4}, size_t{24}, SIZE_MAX - 7}) {
    onebitTransportSetting row = kRows[0];
    row.offset = offset;
    ExpectRefused(row, "transport fake2 declares the setting ONEBIT_FAKE2_SPEED at offset " +
                           std::to_string(offset) + " of a structure of 24 bytes");
  }
}

TEST(DeclaredSettingsTest, AnotherAbiVersionIsRefusedBeforeItIsAsked) {
  const onebitTransport future{.structSize = sizeof(onebitTransport),
                               .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION + 1,
                               .getProperties = nullptr};
  EXPECT_FALSE(Transport::PropertiesOf(&future, nullptr).ok());
}

// The environment is read once in a process: this program sets it in main.
TEST(DeclaredSettingsTest, ReachTheTransport) {
  const auto local = Transport::Get("local");
  ASSERT_TRUE(local.ok()) << local.status().text();
  EXPECT_EQ(local.value()->properties().eagerBytes, 512u);
}

}  // namespace
}  // namespace onebit

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("ONEBIT_LOCAL_EAGER_BYTES", "512", 1);
  return RUN_ALL_TESTS();
}
