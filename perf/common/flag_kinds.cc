// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Declares options with what their values must be.
#include "perf/common/flag_kinds.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "perf/common/sizes.h"

namespace onebit::perf {

CLI::Option* AddParsed(CLI::App& app, const std::string& flags, const std::string& help,
                       const std::string& type_name, const std::string& default_text,
                       std::function<std::string(const std::string&)> parse) {
  auto* option = app.add_option_function<std::string>(
      flags,
      [flags, parse = std::move(parse)](const std::string& text) {
        const std::string problem = parse(text);
        if (!problem.empty()) throw CLI::ValidationError(flags, problem);
      },
      help);
  return option->type_name(type_name)->default_str(default_text);
}

void AddCount(CLI::App& app, const std::string& flags, const std::string& help, int at_least,
              int at_most, int* count) {
  app.add_option(flags, *count, help)
      ->check(CLI::Range(at_least, at_most).description(""))
      ->type_name("N")
      ->capture_default_str();
}

void AddSize(CLI::App& app, const std::string& flags, const std::string& help,
             const std::string& default_text, size_t* size) {
  AddParsed(app, flags, help, "SIZE", default_text, [size](const std::string& text) {
    const std::optional<size_t> parsed = ParseSize(text);
    if (!parsed)
      return fmt::format("'{}' is no size; write bytes, or a number with K, M or G", text);
    *size = *parsed;
    return std::string();
  });
}

}  // namespace onebit::perf
