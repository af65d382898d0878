// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Looks variables up and reads numbers strictly: no sign, no white space, no trailing characters.
#include "comm/environment_view.h"

#include <charconv>

namespace onebit {

std::optional<std::string_view> EnvironmentView::Find(std::string_view name) const {
  for (const char* entry : environment_) {
    const std::string_view text(entry);
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') {
      return text.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::string_view EnvironmentView::FirstSet(std::span<const std::string_view> names) const {
  for (const std::string_view name : names) {
    if (Has(name)) return name;
  }
  return {};
}

Result<uint64_t> EnvironmentView::Number(std::string_view name, uint64_t lowest,
                                         uint64_t highest) const {
  const std::string_view text = Find(name).value_or("");
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || value < lowest || value > highest) {
    return Error(Code::kInvalidUsage,
                 "environment variable {}: \"{}\" is not a whole number from {} to {}", name, text,
                 lowest, highest);
  }
  return value;
}

}  // namespace onebit
