// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the rows of the settings table come together, since base knows no transport.
#include "transport/settings.h"

#include <string>
#include <string_view>

#include "base/log.h"
#include "transport/transport.h"

namespace onebit {
namespace {

std::string PrefixOf(std::string_view transport) {
  std::string prefix = "ONEBIT_";
  for (const char c : transport) prefix += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return prefix + "_";
}

Result<SettingsTable> ReadProcessSettings() {
  const std::vector<const onebitTransport*> transports = Transport::Known();
  ONEBIT_ASSIGN_OR_RETURN(const auto declared, DeclaredSettings(transports));
  ONEBIT_ASSIGN_OR_RETURN(SettingsTable table, ReadSettings(ProcessEnvironment(), declared));
  ONEBIT_TRY(ConfigureLog(table.settings.debug, table.settings.debug_file));
  return table;
}

}  // namespace

Result<const SettingsTable*> ProcessSettings() {
  // Never destroyed: transports may ask during exit.
  static const auto* table = new Result<SettingsTable>(ReadProcessSettings());
  if (!table->ok()) return table->status();
  return &table->value();
}

const char* TransportSettingText(const char* name) {
  const auto table = ProcessSettings();
  if (name == nullptr || !table.ok()) return nullptr;
  for (const SettingRow& row : table.value()->rows) {
    if (row.is_declared && row.is_set && std::string_view(name) == row.name) {
      return row.value.c_str();
    }
  }
  return nullptr;
}

Result<std::vector<DeclaredSetting>> DeclaredSettings(
    std::span<const onebitTransport* const> transports) {
  std::vector<DeclaredSetting> declared;
  for (const onebitTransport* transport : transports) {
    ONEBIT_ASSIGN_OR_RETURN(const auto properties, Transport::PropertiesOf(transport, nullptr));
    if (properties.name == nullptr) return Error(Code::kInvalidUsage, "transport has no name");
    const std::string prefix = PrefixOf(properties.name);
    for (size_t i = 0; i < properties.settingCount; ++i) {
      const onebitTransportSetting& row = properties.settings[i];
      if (row.name == nullptr || !std::string_view(row.name).starts_with(prefix)) {
        return Error(Code::kInvalidUsage,
                     "transport {} declares the setting {}; its settings must begin with {}",
                     properties.name, row.name == nullptr ? "NULL" : row.name, prefix);
      }
      if (row.type == nullptr || row.defaultValue == nullptr || row.help == nullptr) {
        return Error(Code::kInvalidUsage,
                     "transport {} declares the setting {} without type, default or help",
                     properties.name, row.name);
      }
      declared.push_back({row.name, row.type, row.defaultValue, row.help, row.accepts});
    }
  }
  return declared;
}

}  // namespace onebit
