// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rows of the settings table and their parser.
#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace onebit {
namespace {

struct Row {
  const char* name;
  const char* type;
  const char* default_value;
  const char* help;
  bool (*parse)(std::string_view text, Settings* settings);
};

template <uint64_t Settings::*kMember, uint64_t kLow, uint64_t kHigh>
bool ParseInteger(std::string_view text, Settings* settings) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (value < kLow || value > kHigh) return false;
  settings->*kMember = value;
  return true;
}

bool ParseLevel(std::string_view text, Settings* settings) {
  constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"NONE", LogLevel::kNone},
                                                               {"VERSION", LogLevel::kVersion},
                                                               {"WARN", LogLevel::kWarn},
                                                               {"INFO", LogLevel::kInfo},
                                                               {"TRACE", LogLevel::kTrace}};
  for (const auto& [name, level] : kLevels) {
    if (text == name) {
      settings->debug = level;
      return true;
    }
  }
  return false;
}

template <std::string Settings::*kMember>
bool ParseText(std::string_view text, Settings* settings) {
  settings->*kMember = text;
  return true;
}

bool ParseTransport(std::string_view text, Settings* settings) {
  settings->transport = text;
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string_view::npos;
}

template <std::optional<uint64_t> Settings::*kMember, uint64_t kHigh>
bool ParseAutoOrInteger(std::string_view text, Settings* settings) {
  if (text == "auto") {
    (settings->*kMember).reset();
    return true;
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  settings->*kMember = value;
  return error == std::errc() && end == text.data() + text.size() && value <= kHigh;
}

// Its value is shown to nobody.
constexpr const char* kSecret = "ONEBIT_SECRET";

constexpr std::array kRows = {
    Row{"ONEBIT_DEBUG", "NONE, VERSION, WARN, INFO or TRACE", "WARN",
        "Lines up to this level are logged.", ParseLevel},
    Row{"ONEBIT_DEBUG_FILE", "path; %h is the host, %p the process id", "",
        "Where the log goes instead of stderr; a file that cannot be opened is an error.",
        ParseText<&Settings::debug_file>},
    Row{"ONEBIT_TRANSPORT", "name of a transport", "ucx",
        "What carries the messages of ranks that are processes; equal on all ranks.",
        ParseTransport},
    Row{"ONEBIT_RENDEZVOUS", "host:port, or path of a file with a slash in it", "",
        "Where the ranks of onebitCommInitEnv meet; unset: what the launcher says.",
        ParseText<&Settings::rendezvous>},
    Row{kSecret, "text of at least 16 characters", "",
        "Lets processes join where they meet at a host and port; equal on all ranks.",
        ParseText<&Settings::secret>},
    Row{"ONEBIT_SECRET_FILE", "path", "",
        "A file that holds the secret and that only its owner may read.",
        ParseText<&Settings::secret_file>},
    Row{"ONEBIT_SOCKET_IFNAME",
        "prefixes of interface names, e.g. eth,ib; =eth0 exact; ^docker not", "",
        "Network interfaces to use; unset: all but loopback and bridges of containers, where there "
        "are "
        "others.",
        ParseText<&Settings::socket_interfaces>},
    Row{"ONEBIT_CONNECT_TIMEOUT_MS", "milliseconds, 1 to 86400000", "60000",
        "All ranks must have joined and connected within this time.",
        ParseInteger<&Settings::connect_timeout_ms, 1, 86'400'000>},
    Row{"ONEBIT_HEARTBEAT_MS", "milliseconds, 1 to 3600000", "1000",
        "Time between a process's signs of life; equal on all ranks.",
        ParseInteger<&Settings::heartbeat_ms, 1, 3'600'000>},
    Row{"ONEBIT_LOSS_TIMEOUT_MS", "milliseconds, 1 to 86400000, more than ONEBIT_HEARTBEAT_MS",
        "15000", "A process that is silent for so long counts as lost; equal on all ranks.",
        ParseInteger<&Settings::loss_timeout_ms, 1, 86'400'000>},
    Row{"ONEBIT_COLLECTIVE_TIMEOUT_MS", "milliseconds, 1 to 86400000", "600000",
        "A collective that makes no progress for so long fails.",
        ParseInteger<&Settings::collective_timeout_ms, 1, 86'400'000>},
    Row{"ONEBIT_COMPUTE_THREADS", "auto, or threads, 0 to 64", "auto",
        "Threads of a communicator that compute beside the caller of a collective; auto: up to 3, "
        "where the ranks of a host leave it cores.",
        ParseAutoOrInteger<&Settings::compute_threads, 64>},
    Row{"ONEBIT_ONE_EXCHANGE_ELEMENTS", "auto, or elements, 0 to 1048576", "auto",
        "Compressed tensors up to this size use one exchange instead of two; auto: 65536 for 2 "
        "ranks, 8192 for 4, 2340 for 8; equal on all ranks.",
        ParseAutoOrInteger<&Settings::one_exchange_elements, 1'048'576>},
    Row{"ONEBIT_GROUP_ELEMENTS", "elements, 0 to 1073741824", "1048576",
        "Calls of a group up to this size travel together, up to four times as much in a message; "
        "0: none does; equal on all ranks.",
        ParseInteger<&Settings::group_elements, 0, 1'073'741'824>},
    Row{"ONEBIT_PLUGIN_PATH", "folders, with colons between them", "",
        "Where transports are looked for before the library's own folder.",
        ParseText<&Settings::plugin_path>},
    Row{"ONEBIT_SEGMENT_ELEMENTS", "elements, 64 to 1073741824", "262144",
        "Chunks travel in segments of about this size, dense ones in quarters of it, at most 64 a "
        "chunk; equal on all ranks.",
        ParseInteger<&Settings::segment_elements, 64, 1'073'741'824>},
};

std::optional<std::string> Find(std::span<const char* const> environment, std::string_view name) {
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return std::string(text.substr(name.size() + 1));
    }
  }
  return std::nullopt;
}

// Null when there is none.
const SettingRow* FindRow(std::span<const SettingRow> rows, std::string_view name) {
  for (const SettingRow& row : rows) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

Status RefuseUnknown(std::span<const char* const> environment, std::span<const SettingRow> rows) {
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (!text.starts_with("ONEBIT_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    if (FindRow(rows, name) != nullptr) continue;
    std::string known;
    for (const SettingRow& row : rows) {
      AppendFormat(&known, "{}{}", known.empty() ? "" : ", ", row.name);
    }
    return Error(
        Code::kInvalidUsage,
        "environment variable {} is unknown: check its spelling, or unset it; there are {}", name,
        known);
  }
  return OkStatus();
}

Status Refuse(const SettingRow& row) {
  return Error(Code::kInvalidUsage, "environment variable {}: \"{}\" is not {}", row.name,
               row.value, row.type);
}

// Appends a row of the library or of a plugin with the value it has in `environment`.
template <typename AnyRow>
const SettingRow& Append(const AnyRow& row, bool is_declared,
                         std::span<const char* const> environment, SettingsTable* table) {
  const std::optional<std::string> text = Find(environment, row.name);
  return table->rows.emplace_back(SettingRow{.name = row.name,
                                             .type = row.type,
                                             .default_value = row.default_value,
                                             .help = row.help,
                                             .value = text.value_or(row.default_value),
                                             .is_set = text.has_value(),
                                             .is_declared = is_declared});
}

}  // namespace

Result<SettingsTable> ReadSettings(std::span<const char* const> environment,
                                   std::span<const DeclaredSetting> declared) {
  SettingsTable table;
  Status first_error;
  for (const Row& row : kRows) {
    const SettingRow& added = Append(row, false, environment, &table);
    if (!row.parse(added.value, &table.settings) && first_error.ok()) first_error = Refuse(added);
    if (added.is_set && row.name == kSecret) table.rows.back().value = "(not shown)";
  }
  for (const DeclaredSetting& row : declared) {
    if (FindRow(table.rows, row.name) != nullptr) {
      return Error(Code::kInvalidUsage, "the setting {} is declared twice", row.name);
    }
    const SettingRow& added = Append(row, true, environment, &table);
    const bool is_accepted = row.accepts == nullptr || row.accepts(added.value.c_str()) != 0;
    if (!is_accepted && first_error.ok()) first_error = Refuse(added);
  }
  ONEBIT_TRY(RefuseUnknown(environment, table.rows));
  ONEBIT_TRY(first_error);
  return table;
}

bool SettingsTable::IsSet(std::string_view name) const {
  const SettingRow* row = FindRow(rows, name);
  return row != nullptr && row->is_set;
}

std::vector<std::string> UnknownVariables(std::span<const char* const> environment,
                                          std::span<const DeclaredSetting> declared) {
  std::vector<std::string> unknown;
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (!text.starts_with("ONEBIT_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const auto has_name = [name](const auto& row) { return name == row.name; };
    if (std::none_of(kRows.begin(), kRows.end(), has_name) &&
        std::none_of(declared.begin(), declared.end(), has_name)) {
      unknown.emplace_back(name);
    }
  }
  return unknown;
}

std::string TextOf(std::span<const char* const> environment, const char* name) {
  return Find(environment, name).value_or("");
}

std::span<const char* const> ProcessEnvironment() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  return {environ, count};
}

}  // namespace onebit
