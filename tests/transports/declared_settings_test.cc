// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How settings that transports declare get into the table of the process, and back to transports.
#include "transport/settings.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "transport/transport.h"

namespace onebit {
namespace {

// What the transport under test declares.
onebitTransportSetting declared_row;

onebitResult_t GetProperties(void*, onebitTransportProperties* properties) {
  properties->name = "carrier2";
  properties->settings = &declared_row;
  properties->settingCount = 1;
  return onebitSuccess;
}

constexpr onebitTransport kCarrier{.structSize = sizeof(onebitTransport),
                                   .abiVersion = ONEBIT_TRANSPORT_ABI_VERSION,
                                   .getProperties = GetProperties};

Result<std::vector<DeclaredSetting>> Declare(const onebitTransportSetting& row,
                                             const onebitTransport& transport = kCarrier) {
  declared_row = row;
  const onebitTransport* const transports[] = {&transport};
  return DeclaredSettings(transports);
}

constexpr onebitTransportSetting kSpeed{.name = "ONEBIT_CARRIER2_SPEED",
                                        .type = "text",
                                        .defaultValue = "fast",
                                        .help = "Speed of flight."};

void ExpectRefused(const onebitTransportSetting& row, const std::string& text) {
  const auto declared = Declare(row);
  ASSERT_FALSE(declared.ok());
  EXPECT_EQ(declared.status().code(), Code::kInvalidUsage);
  EXPECT_EQ(declared.status().text(), text);
}

TEST(DeclaredSettingsTest, RowsAreTakenOver) {
  const auto declared = Declare(kSpeed);
  ASSERT_TRUE(declared.ok()) << declared.status().text();
  ASSERT_EQ(declared.value().size(), 1u);
  EXPECT_STREQ(declared.value()[0].name, "ONEBIT_CARRIER2_SPEED");
  EXPECT_STREQ(declared.value()[0].type, "text");
  EXPECT_STREQ(declared.value()[0].default_value, "fast");
  EXPECT_STREQ(declared.value()[0].help, "Speed of flight.");
}

TEST(DeclaredSettingsTest, NamesOfOthersAreRefused) {
  for (const char* name : {"ONEBIT_SPEED", "ONEBIT_CARRIER_SPEED", "CARRIER2_SPEED",
                           "ONEBIT_carrier2_SPEED", "ONEBIT_CARRIER2SPEED"}) {
    onebitTransportSetting row = kSpeed;
    row.name = name;
    ExpectRefused(row, std::string("transport carrier2 declares the setting ") + name +
                           "; its settings must begin with ONEBIT_CARRIER2_");
  }
}

TEST(DeclaredSettingsTest, IncompleteRowsAreRefused) {
  for (const char* onebitTransportSetting::*member :
       {&onebitTransportSetting::type, &onebitTransportSetting::defaultValue,
        &onebitTransportSetting::help}) {
    onebitTransportSetting row = kSpeed;
    row.*member = nullptr;
    ExpectRefused(row,
                  "transport carrier2 declares the setting ONEBIT_CARRIER2_SPEED without type, "
                  "default or help");
  }
}

TEST(DeclaredSettingsTest, AnotherAbiVersionIsRefusedBeforeItIsAsked) {
  onebitTransport future = kCarrier;
  future.abiVersion = ONEBIT_TRANSPORT_ABI_VERSION + 1;
  future.getProperties = nullptr;
  EXPECT_FALSE(Declare(kSpeed, future).ok());
}

// The environment is read once in a process: this program sets it in main.
TEST(TransportSettingTextTest, IsTheEnvironmentsAndNullForWhatNoTransportDeclared) {
  EXPECT_STREQ(TransportSettingText("ONEBIT_LOCAL_EAGER_BYTES"), "512");
  EXPECT_EQ(TransportSettingText("ONEBIT_SEGMENT_ELEMENTS"), nullptr);  // set, but the library's
  EXPECT_EQ(TransportSettingText("ONEBIT_CARRIER2_SPEED"), nullptr);
  EXPECT_EQ(TransportSettingText("PATH"), nullptr);
  EXPECT_EQ(TransportSettingText(nullptr), nullptr);
}

TEST(TransportSettingTextTest, ReachesTheTransport) {
  const auto local = Transport::Get("local");
  ASSERT_TRUE(local.ok()) << local.status().text();
  EXPECT_EQ(local.value()->properties().eagerBytes, 512u);
}

}  // namespace
}  // namespace onebit

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("ONEBIT_LOCAL_EAGER_BYTES", "512", 1);
  setenv("ONEBIT_SEGMENT_ELEMENTS", "64", 1);
  return RUN_ALL_TESTS();
}
