// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Settings are environment variables named ONEBIT_*. Each is one typed row, the library's own or a
// transport's, and this file's parser reads and prints all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace onebit {

// The values a setting may have. Integers, booleans and choices are parsed into a uint64_t, the
// others into a const char*.
enum class SettingKind : int {
  kInteger = 0,        // decimal digits, `minimum` to `maximum`
  kAutoOrInteger = 1,  // the same, or "auto", which is kAuto
  kBoolean = 2,        // 0 or 1
  kChoice = 3,         // one of `values`; its value is the position there
  kName = 4,           // lower-case letters and digits
  kList = 5,           // letters, digits and _-.:,^@/
  kText = 6,           // anything
  kPath = 7,           // names of files or folders; ignored in a secure execution
};
inline constexpr uint64_t kAuto = UINT64_MAX;

// One row. All texts have static storage.
struct Setting {
  const char* name;
  SettingKind kind;
  // The unit of an integer, "bytes"; the choices, "no|yes"; otherwise the value in words, "path".
  const char* values = "";
  uint64_t minimum = 0;
  uint64_t maximum = 0;
  const char* default_value;  // only if it is empty may the value of a name or list be
  const char* help;
  size_t offset;  // where the value goes in the structure that receives all values of a table
};

// Values of the library's own rows, which settings.cc declares with their defaults. Texts point
// into the environment that was read.
struct Settings {
  uint64_t debug;           // a LogLevel
  const char* debug_file;   // empty: stderr
  const char* trace;        // empty: none
  const char* plugin_path;  // folders with colons between them
  const char* library;      // for the Python package, which reads it before there is a library
  const char* torch_ddp;    // for the Python package, which reads it before there is a library
  const char* transport;
  const char* rendezvous;   // empty: what the launcher says
  const char* job;          // empty: what the launcher says
  const char* secret;       // empty: none
  const char* secret_file;  // empty: none
  const char* socket_interfaces;
  const char* host;     // empty: the machine
  uint64_t host_ranks;  // 0: not set
  uint64_t connect_timeout_ms;
  uint64_t heartbeat_ms;
  uint64_t loss_timeout_ms;
  uint64_t collective_timeout_ms;
  uint64_t shrink_grace_ms;
  uint64_t quorum;
  uint64_t one_exchange_elements;  // or kAuto
  uint64_t two_level_bytes;        // or kAuto
  uint64_t segment_elements;
  uint64_t group_elements;   // or kAuto
  uint64_t compute_threads;  // or kAuto

  LogLevel log_level() const { return static_cast<LogLevel>(debug); }
};

// A row as shown to people.
struct SettingRow {
  const char* name;
  std::string type;  // what its value may be, "bytes, 0 to 4096"
  const char* default_value;
  const char* help;
  std::string value;  // in force
  bool is_set;        // by the environment
};

struct SettingsTable {
  Settings settings = {};
  std::vector<SettingRow> rows;
  // One for each ONEBIT_* variable that is unknown, or ignored in a secure execution.
  std::vector<std::string> warnings;

  // True if the environment sets the row.
  bool IsSet(std::string_view name) const;
};

// Reads an environment of "NAME=value" strings, which must outlive the table: the library's own
// rows and `declared`. A value that does not parse is an error that names its variable.
Result<SettingsTable> ReadSettings(std::span<const char* const> environment,
                                   std::span<const Setting> declared = {});

// Writes the value of each row, from the environment or its default, to its offset in `values`.
Status ReadValues(std::span<const char* const> environment, std::span<const Setting> settings,
                  void* values);

// Names of the ONEBIT_* variables in an environment that are rows neither of the library nor of
// `declared`.
std::vector<std::string> UnknownVariables(std::span<const char* const> environment,
                                          std::span<const Setting> declared);

// Value of ONEBIT_PLUGIN_PATH in an environment, for those who need it before there is a table.
const char* PluginPathOf(std::span<const char* const> environment);

// True if this program runs with more rights than its caller has: it is set-user-ID or
// set-group-ID, or its file has capabilities. Its caller must not choose what it opens, loads or
// writes.
bool IsSecureExecution();

// The environment of this process as it is now.
std::span<const char* const> ProcessEnvironment();

}  // namespace onebit
