// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The table of ONEBIT_* environment variables: each is one row, read and parsed once.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/log.h"
#include "base/status.h"

namespace onebit {

// Values in force, parsed. The defaults stand in the table in settings.cc.
struct Settings {
  LogLevel debug = LogLevel::kWarn;
  std::string debug_file;  // empty: stderr
  uint64_t collective_timeout_ms = 0;
  uint64_t one_exchange_elements = 0;
  uint64_t segment_elements = 0;
  uint64_t local_eager_bytes = 0;
};

// A row as shown to people.
struct SettingRow {
  const char* name;
  const char* type;
  const char* default_value;
  const char* help;
  const char* value;   // in force
  const char* source;  // "default" or "environment"
};

// Reads the environment at the first call and never again, and sets up the log. An unknown ONEBIT_*
// variable, a value that does not parse or a log file that cannot be opened is an error that names
// it; it stays one for the life of the process.
Result<const Settings*> GetSettings();
Result<std::span<const SettingRow>> GetSettingRows();

// The text of a row by name; null when there is no such row.
const char* SettingText(const char* name);

// The parser behind GetSettings, on an environment given as "NAME=value" strings.
Result<Settings> ParseSettings(std::span<const char* const> environment);

}  // namespace onebit
