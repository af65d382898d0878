// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Kinds of options that the command line parser does not have: named values, a number or a word,
// and checks that NaN and signs do not slip through.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

namespace onebit::train {

template <typename Enum>
using Names = std::vector<std::pair<std::string, Enum>>;

template <typename Enum>
const char* NameOf(const Names<Enum>& names, Enum value) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [value](const auto& name) { return name.second == value; });
  return found == names.end() ? "?" : found->first.c_str();
}

/** `values` as "a|b|c". */
template <typename Enum>
std::string Choices(const Names<Enum>& names) {
  std::string text;
  for (const auto& [name, value] : names) text += (text.empty() ? "" : "|") + name;
  return text;
}

template <typename Enum>
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, const Names<Enum>& names,
                       Enum& value, const std::string& help) {
  CLI::Option* option = app.add_option_function<std::string>(
      flag,
      [&names, &value, flag](const std::string& text) {
        const auto found = std::find_if(names.begin(), names.end(),
                                        [&text](const auto& name) { return name.first == text; });
        if (found == names.end()) {
          throw CLI::ValidationError(flag, fmt::format("{} is not {}", text, Choices(names)));
        }
        value = found->second;
      },
      fmt::format("{} [{}]", help, NameOf(names, value)));
  return option->type_name(Choices(names));
}

/** An integer, or `word`, which stands for `word_value`. */
template <typename Integer, typename Store>
CLI::Option* AddIntegerOr(CLI::App& app, const std::string& flag, const std::string& word,
                          Integer word_value, Store store, const std::string& help) {
  CLI::Option* option = app.add_option_function<std::string>(
      flag,
      [=](const std::string& text) {
        Integer number = word_value;
        if (text != word && !CLI::detail::lexical_cast(text, number)) {
          throw CLI::ValidationError(flag,
                                     fmt::format("{} is neither a number nor {}", text, word));
        }
        store(number, text != word);
      },
      help);
  return option->type_name("N|" + word);
}

/** A finite number that is not negative. CLI::Range lets NaN pass. */
inline CLI::Validator NotNegative() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = -1;
        const bool is_fine =
            CLI::detail::lexical_cast(text, number) && std::isfinite(number) && number >= 0;
        return is_fine ? "" : text + " is not a number of 0 or more";
      },
      "");
}

/** A number in (0, 100]. */
inline CLI::Validator Percent() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = -1;
        const bool is_fine = CLI::detail::lexical_cast(text, number) && number > 0 && number <= 100;
        return is_fine ? "" : text + " is not more than 0 and at most 100";
      },
      "");
}

/** A number in [0, 1). */
inline CLI::Validator Decay() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = -1;
        const bool is_fine = CLI::detail::lexical_cast(text, number) && number >= 0 && number < 1;
        return is_fine ? "" : text + " is not in [0, 1)";
      },
      "");
}

/** Conversions to unsigned types let -1 pass. */
inline CLI::Validator NoSign() {
  return CLI::Validator(
      [](std::string& text) { return text.starts_with('-') ? text + " is negative" : ""; }, "");
}

/** Throws if one of `flags` was given; `reason` is why it would have no effect. */
inline void RequireUnused(const CLI::App& app, const std::vector<const char*>& flags,
                          const std::string& reason) {
  for (const char* flag : flags) {
    if (app.get_option(flag)->count() > 0) {
      throw CLI::ValidationError(flag, "has no effect " + reason);
    }
  }
}

}  // namespace onebit::train
