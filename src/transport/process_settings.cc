// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Joins the library's rows with those of transports, which src/base does not know.
#include "transport/process_settings.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "base/log.h"
#include "transport/declared_settings.h"
#include "transport/loader.h"
#include "transport/transport.h"
#include "transport/variants.h"

namespace onebit {
namespace {

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

Result<std::vector<Setting>> SettingsOfKnownTransports() {
  std::vector<Setting> declared;
  for (const onebitTransport* transport : Transport::Known()) {
    ONEBIT_ASSIGN_OR_RETURN(const auto properties, Transport::PropertiesOf(transport, nullptr));
    ONEBIT_ASSIGN_OR_RETURN(const auto settings, DeclaredSettings(properties));
    declared.insert(declared.end(), settings.begin(), settings.end());
  }
  return declared;
}

// Opens the plugins that have a variable in the environment, judging by its name. If there is no
// such plugin, or it does not open, the variable is left to count as unknown: it may be somebody
// else's, and whoever selects the transport gets the error.
Status OpenPluginsWithVariables() {
  if (IsSecureExecution()) return OkStatus();  // the caller must not choose what is loaded
  const auto environment = EarlyEnvironment();
  ONEBIT_ASSIGN_OR_RETURN(const auto declared, SettingsOfKnownTransports());
  const std::vector<std::string> folders = PluginFolders(PluginPathOf(environment));
  for (const std::string& variable : UnknownVariables(environment, declared)) {
    const std::string name = PluginOf(variable);
    if (name.empty() || !PluginFile(name).ok()) continue;
    static_cast<void>(Transport::Open(name, folders));
  }
  return OkStatus();
}

// Adds rows for the variables of a transport that has several plugins, none of which this process
// can choose. It cannot use the transport, so nothing checks the values.
void AppendUnchecked(std::vector<Setting>* declared) {
  const auto environment = EarlyEnvironment();
  const std::vector<std::string> plugins = FindPlugins(PluginFolders(PluginPathOf(environment)));
  for (const std::string& variable : UnknownVariables(environment, *declared)) {
    const std::string name = PluginOf(variable);
    if (std::ranges::count(plugins, name) == 0 || PluginFile(name).ok()) continue;
    // Rows have static storage, and tables are read once.
    const auto* kept = new std::string(variable);
    declared->push_back({.name = kept->c_str(),
                         .kind = SettingKind::kText,
                         .values = "not checked",
                         .default_value = "",
                         .help = "Belongs to a transport that cannot be used in this process.",
                         .offset = 0});
  }
}

Result<SettingsTable> ReadTable() {
  ONEBIT_ASSIGN_OR_RETURN(auto declared, SettingsOfKnownTransports());
  AppendUnchecked(&declared);
  return ReadSettings(EarlyEnvironment(), declared);
}

Result<SettingsTable> ReadProcessSettings() {
  ONEBIT_TRY(OpenPluginsWithVariables());
  ONEBIT_ASSIGN_OR_RETURN(SettingsTable table, ReadTable());
  ONEBIT_TRY(ConfigureLog(table.settings.log_level(), table.settings.debug_file));
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
  return ReadTable();
}

}  // namespace

Result<const SettingsTable*> ProcessSettings() {
  // Never destroyed: transports may ask during exit.
  static const auto* table = new Result<SettingsTable>(ReadProcessSettings());
  if (!table->ok()) return table->status();
  // After the initialisation, because the application's log callback may call the library.
  static std::atomic<bool> has_warned = false;
  if (!has_warned.exchange(true)) {
    for (const std::string& text : table->value().warnings) LogLine(LogLevel::kWarn, text);
  }
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

std::span<const char* const> EarlyEnvironment() {
  static const auto* texts =
      new std::vector<std::string>(ProcessEnvironment().begin(), ProcessEnvironment().end());
  static const auto* entries = [] {
    auto* pointers = new std::vector<const char*>;
    for (const std::string& text : *texts) pointers->push_back(text.c_str());
    return pointers;
  }();
  return *entries;
}

}  // namespace onebit
