// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table of ONEBIT_* environment variables: each is one row, of this library or declared by a
// plugin, and is parsed once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace onebit {

// Values of the library's own rows, parsed. The defaults stand in the table in settings.cc.
struct Settings {
  LogLevel debug = LogLevel::kWarn;
  std::string debug_file;   // empty: stderr
  std::string plugin_path;  // folders with colons between them
  std::string transport;
  std::string rendezvous;   // empty: what the launcher says
  std::string secret;       // empty: none
  std::string secret_file;  // empty: none
  std::string socket_interfaces;
  uint64_t connect_timeout_ms = 0;
  uint64_t heartbeat_ms = 0;
  uint64_t loss_timeout_ms = 0;
  uint64_t collective_timeout_ms = 0;
  std::optional<uint64_t> one_exchange_elements;  // none: auto
  uint64_t segment_elements = 0;
  uint64_t group_elements = 0;
  std::optional<uint64_t> compute_threads;  // none: auto
};

// A row that a plugin brings along and parses itself. All texts have static storage.
struct DeclaredSetting {
  const char* name;
  const char* type;
  const char* default_value;
  const char* help;
  int (*accepts)(const char* text);  // nonzero: the text is a value; null: every text is
};

// A row as shown to people.
struct SettingRow {
  const char* name;
  const char* type;
  const char* default_value;
  const char* help;
  std::string value;  // in force
  bool is_set;        // by the environment
  bool is_declared;   // by a plugin
};

struct SettingsTable {
  Settings settings;
  std::vector<SettingRow> rows;

  // Whether the environment sets a row.
  bool IsSet(std::string_view name) const;
};

// Reads an environment, given as "NAME=value" strings. An unknown ONEBIT_* variable or a value that
// does not parse is an error that names it.
Result<SettingsTable> ReadSettings(std::span<const char* const> environment,
                                   std::span<const DeclaredSetting> declared = {});

// Names of the ONEBIT_* variables of an environment that are no rows of this table.
std::vector<std::string> UnknownVariables(std::span<const char* const> environment,
                                          std::span<const DeclaredSetting> declared);

// Value of a variable in an environment; empty when it is not set.
std::string TextOf(std::span<const char* const> environment, const char* name);

// The environment of this process, to be read before anything changes it.
std::span<const char* const> ProcessEnvironment();

}  // namespace onebit
