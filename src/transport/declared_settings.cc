// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/declared_settings.h"

#include <string>
#include <string_view>

namespace onebit {
namespace {

static_assert(static_cast<int>(SettingKind::kInteger) == onebitSettingInteger &&
              static_cast<int>(SettingKind::kAutoOrInteger) == onebitSettingAutoOrInteger &&
              static_cast<int>(SettingKind::kBoolean) == onebitSettingBoolean &&
              static_cast<int>(SettingKind::kChoice) == onebitSettingChoice &&
              static_cast<int>(SettingKind::kName) == onebitSettingName &&
              static_cast<int>(SettingKind::kList) == onebitSettingList &&
              static_cast<int>(SettingKind::kText) == onebitSettingText &&
              static_cast<int>(SettingKind::kPath) == onebitSettingPath);
static_assert(kAuto == ONEBIT_SETTING_AUTO);

std::string PrefixOf(std::string_view transport) {
  std::string prefix = "ONEBIT_";
  for (const char c : transport) prefix += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return prefix + "_";
}

Status Check(const onebitTransportSetting& row, const onebitTransportProperties& properties) {
  const std::string prefix = PrefixOf(properties.name);
  if (row.name == nullptr || !std::string_view(row.name).starts_with(prefix)) {
    return Error(Code::kInvalidUsage,
                 "transport {} declares the setting {}; its settings must begin with {}",
                 properties.name, row.name == nullptr ? "NULL" : row.name, prefix);
  }
  if (row.values == nullptr || row.defaultValue == nullptr || row.help == nullptr) {
    return Error(Code::kInvalidUsage,
                 "transport {} declares the setting {} without values, default or help",
                 properties.name, row.name);
  }
  if (row.kind < onebitSettingInteger || row.kind > onebitSettingPath) {
    return Error(Code::kInvalidUsage,
                 "transport {} declares the setting {} with the unknown kind {}", properties.name,
                 row.name, row.kind);
  }
  constexpr size_t kValueBytes = sizeof(uint64_t);
  if (row.offset % kValueBytes != 0 || properties.settingsBytes < kValueBytes ||
      row.offset > properties.settingsBytes - kValueBytes) {
    return Error(Code::kInvalidUsage,
                 "transport {} declares the setting {} at offset {} of a structure of {} bytes",
                 properties.name, row.name, row.offset, properties.settingsBytes);
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<Setting>> DeclaredSettings(const onebitTransportProperties& properties) {
  if (properties.name == nullptr) return Error(Code::kInvalidUsage, "transport has no name");
  std::vector<Setting> settings;
  for (size_t i = 0; i < properties.settingCount; ++i) {
    const onebitTransportSetting& row = properties.settings[i];
    ONEBIT_TRY(Check(row, properties));
    settings.push_back({.name = row.name,
                        .kind = static_cast<SettingKind>(row.kind),
                        .values = row.values,
                        .minimum = row.minimum,
                        .maximum = row.maximum,
                        .default_value = row.defaultValue,
                        .help = row.help,
                        .offset = row.offset});
  }
  return settings;
}

Result<std::vector<uint64_t>> SettingsForInit(const onebitTransportProperties& properties,
                                              std::span<const char* const> environment) {
  ONEBIT_ASSIGN_OR_RETURN(const auto settings, DeclaredSettings(properties));
  std::vector<uint64_t> values(settings.empty() ? 0 : (properties.settingsBytes + 7) / 8);
  ONEBIT_TRY(ReadValues(environment, settings, values.data()));
  return values;
}

}  // namespace onebit
