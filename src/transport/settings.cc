// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the rows of the settings table come together, since base knows no transport.
#include "transport/settings.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/log.h"
#include "transport/loader.h"
#include "transport/transport.h"
#include "transport/variants.h"

namespace onebit {
namespace {

std::string PrefixOf(std::string_view transport) {
  std::string prefix = "ONEBIT_";
  for (const char c : transport) prefix += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return prefix + "_";
}

// "ucx" for ONEBIT_UCX_TLS; empty if no plugin can have such a variable.
std::string PluginOf(std::string_view variable) {
  variable.remove_prefix(std::string_view("ONEBIT_").size());
  const size_t end = variable.find('_');
  if (end == variable.npos) return "";
  std::string name;
  for (const char c : variable.substr(0, end)) {
    if (c >= 'a' && c <= 'z') return "";
    name += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return IsTransportName(name) ? name : "";
}

// Opens the plugins that variables of the environment seem to be for. That there is none is no
// error here: then the variable is unknown.
Status OpenPluginsOf(std::span<const char* const> environment,
                     std::span<const DeclaredSetting> declared) {
  const std::vector<std::string> folders = PluginFolders(TextOf(environment, "ONEBIT_PLUGIN_PATH"));
  for (const std::string& variable : UnknownVariables(environment, declared)) {
    const std::string name = PluginOf(variable);
    if (name.empty() || !PluginFile(name).ok()) continue;
    const auto opened = Transport::Open(name, folders);
    if (opened.ok() || opened.status().code() == Code::kInvalidArgument) continue;
    return Error(opened.status().code(), "environment variable {}: {}", variable,
                 opened.status().text());
  }
  return OkStatus();
}

// Variables of plugins of which this process cannot tell which one it would need, so that it has no
// use for them either. They cannot be checked, and are no reason to refuse another transport.
void AppendUnchecked(std::span<const char* const> environment,
                     std::vector<DeclaredSetting>* declared) {
  const std::vector<std::string> plugins =
      FindPlugins(PluginFolders(TextOf(environment, "ONEBIT_PLUGIN_PATH")));
  for (const std::string& variable : UnknownVariables(environment, *declared)) {
    const std::string name = PluginOf(variable);
    if (std::ranges::count(plugins, name) == 0 || PluginFile(name).ok()) continue;
    // Rows have static storage, and tables are read once.
    const auto* kept = new std::string(variable);
    declared->push_back({.name = kept->c_str(),
                         .type = "not checked",
                         .default_value = "",
                         .help = "Of a transport that cannot be used in this process.",
                         .accepts = nullptr});
  }
}

Result<SettingsTable> ReadTable(std::span<const char* const> environment) {
  ONEBIT_ASSIGN_OR_RETURN(auto declared, DeclaredSettings(Transport::Known()));
  AppendUnchecked(environment, &declared);
  return ReadSettings(environment, declared);
}

// What the environment was when it was first looked at.
const std::vector<std::string>& EarlyEnvironment() {
  static const auto* texts =
      new std::vector<std::string>(ProcessEnvironment().begin(), ProcessEnvironment().end());
  return *texts;
}

std::vector<const char*> PointersTo(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

Result<SettingsTable> ReadProcessSettings() {
  const std::vector<const char*> environment = PointersTo(EarlyEnvironment());
  ONEBIT_ASSIGN_OR_RETURN(const auto declared, DeclaredSettings(Transport::Known()));
  ONEBIT_TRY(OpenPluginsOf(environment, declared));
  ONEBIT_ASSIGN_OR_RETURN(SettingsTable table, ReadTable(environment));
  ONEBIT_TRY(ConfigureLog(table.settings.debug, table.settings.debug_file));
  return table;
}

Result<SettingsTable> ReadListedSettings(const Settings& settings) {
  const std::vector<std::string> folders = PluginFolders(settings.plugin_path);
  for (const std::string& name : FindPlugins(folders)) {
    if (const auto file = PluginFile(name); !file.ok()) {
      LogLine(LogLevel::kInfo, Format("{}; its settings are not listed", file.status().text()));
      continue;
    }
    const auto opened = Transport::Open(name, folders);
    if (!opened.ok()) LogLine(LogLevel::kWarn, opened.status().text());
  }
  return ReadTable(PointersTo(EarlyEnvironment()));
}

}  // namespace

Result<const SettingsTable*> ProcessSettings() {
  // Never destroyed: transports may ask during exit.
  static const auto* table = new Result<SettingsTable>(ReadProcessSettings());
  if (!table->ok()) return table->status();
  return &table->value();
}

Result<const SettingsTable*> ListedSettings() {
  ONEBIT_ASSIGN_OR_RETURN(const SettingsTable* own, ProcessSettings());
  static const auto* table = new Result<SettingsTable>(ReadListedSettings(own->settings));
  if (!table->ok()) return table->status();
  return &table->value();
}

std::vector<std::string> ListedTransports() {
  std::vector<std::string> names = Transport::BuiltIns();
  const auto table = ProcessSettings();
  if (!table.ok()) return names;
  for (std::string& name : FindPlugins(PluginFolders(table.value()->settings.plugin_path))) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<std::string> ProcessPluginFolders() {
  const auto table = ProcessSettings();
  return PluginFolders(table.ok() ? table.value()->settings.plugin_path : "");
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
