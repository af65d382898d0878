// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The rows of the settings table and their parser.
#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

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

bool ParseDebugFile(std::string_view text, Settings* settings) {
  settings->debug_file = text;
  return true;
}

constexpr std::array kRows = {
    Row{"ONEBIT_DEBUG", "NONE, VERSION, WARN, INFO or TRACE", "WARN",
        "Lines up to this level are logged.", ParseLevel},
    Row{"ONEBIT_DEBUG_FILE", "path; %h is the host, %p the process id", "",
        "Where the log goes instead of stderr; a file that cannot be opened is an error.",
        ParseDebugFile},
    Row{"ONEBIT_COLLECTIVE_TIMEOUT_MS", "milliseconds, 1 to 86400000", "600000",
        "A collective that makes no progress for so long fails.",
        ParseInteger<&Settings::collective_timeout_ms, 1, 86'400'000>},
    Row{"ONEBIT_ONE_EXCHANGE_ELEMENTS", "elements, 0 to 1048576", "8192",
        "Compressed tensors up to this size use one exchange instead of two; equal on all ranks.",
        ParseInteger<&Settings::one_exchange_elements, 0, 1'048'576>},
    Row{"ONEBIT_SEGMENT_ELEMENTS", "elements, 64 to 1073741824", "262144",
        "Chunks travel in segments of about this size; equal on all ranks.",
        ParseInteger<&Settings::segment_elements, 64, 1'073'741'824>},
    Row{"ONEBIT_LOCAL_EAGER_BYTES", "bytes, 0 to 65536", "1024",
        "Transport local: payloads up to this size are copied at once, larger ones by the "
        "receiver.",
        ParseInteger<&Settings::local_eager_bytes, 0, 65536>},
};

struct Table {
  Settings settings;
  Status status;
  std::vector<std::string> values;
  std::vector<SettingRow> rows;
};

std::optional<std::string_view> Find(std::span<const char* const> environment,
                                     std::string_view name) {
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return text.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

Status RefuseUnknown(std::span<const char* const> environment) {
  for (const char* entry : environment) {
    const std::string_view text(entry);
    if (!text.starts_with("ONEBIT_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_known =
        std::any_of(kRows.begin(), kRows.end(), [&](const Row& row) { return name == row.name; });
    if (!is_known) {
      return Error(Code::kInvalidUsage,
                   "environment variable {} is unknown; onebit_info lists the known ones, unset it",
                   name);
    }
  }
  return OkStatus();
}

std::span<const char* const> ProcessEnvironment() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  return {environ, count};
}

Table ReadTable() {
  Table table;
  const auto environment = ProcessEnvironment();
  auto settings = ParseSettings(environment);
  if (settings.ok()) {
    table.settings = std::move(settings).value();
    table.status = ConfigureLog(table.settings.debug, table.settings.debug_file);
  } else {
    table.status = settings.status();
  }
  table.values.reserve(kRows.size());  // rows point into it
  for (const Row& row : kRows) {
    const auto value = Find(environment, row.name);
    table.values.emplace_back(value.value_or(row.default_value));
    table.rows.push_back({row.name, row.type, row.default_value, row.help,
                          table.values.back().c_str(), value ? "environment" : "default"});
  }
  return table;
}

const Table& TheTable() {
  static const Table* table = new Table(ReadTable());  // never destroyed: used during exit
  return *table;
}

}  // namespace

Result<Settings> ParseSettings(std::span<const char* const> environment) {
  ONEBIT_TRY(RefuseUnknown(environment));
  Settings settings;
  for (const Row& row : kRows) {
    const std::string_view text = Find(environment, row.name).value_or(row.default_value);
    if (!row.parse(text, &settings)) {
      return Error(Code::kInvalidUsage, "environment variable {}: \"{}\" is not {}", row.name, text,
                   row.type);
    }
  }
  return settings;
}

Result<const Settings*> GetSettings() {
  const Table& table = TheTable();
  if (!table.status.ok()) return table.status;
  return &table.settings;
}

Result<std::span<const SettingRow>> GetSettingRows() {
  const Table& table = TheTable();
  if (!table.status.ok()) return table.status;
  return std::span<const SettingRow>(table.rows);
}

const char* SettingText(const char* name) {
  for (const SettingRow& row : TheTable().rows) {
    if (std::strcmp(row.name, name) == 0) return row.value;
  }
  return nullptr;
}

}  // namespace onebit
