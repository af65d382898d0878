// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Kinds of options that tools declare to CLI11, and the parsing of command lines.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/procs.h"

namespace onebit::perf {

// Reads a command line. Returns false if help was asked for, which only the speaking rank prints.
// Throws UsageError.
bool ParseCommandLine(CLI::App& app, int argc, const char* const* argv, bool is_speaker = true);

// Adds an option whose text `parse` turns into a value; `parse` returns why it cannot, or "".
CLI::Option* AddParsed(CLI::App& app, const std::string& flags, const std::string& help,
                       const std::string& type_name, const std::string& default_text,
                       std::function<std::string(const std::string&)> parse);

// Adds an integer from `at_least` to `at_most`.
CLI::Option* AddCount(CLI::App& app, const std::string& flags, const std::string& help,
                      int at_least, int at_most, int* count);

// Adds a flag of nccl-tests of which only one value makes sense here; `instead` is the error text
// for others.
CLI::Option* AddOnly(CLI::App& app, const std::string& flags, const std::string& help,
                     const std::string& value, const std::string& instead);

// Adds a size in bytes, with K, M or G. CLI::AsSizeValue would refuse fractions such as 1.5G.
void AddSize(CLI::App& app, const std::string& flags, const std::string& help,
             const std::string& default_text, size_t* size);

// Adds --block: elements per scale, a multiple of `unit`, or ONEBIT_BLOCK_TENSOR. *block has the
// default.
CLI::Option* AddBlock(CLI::App& app, int32_t* block, size_t unit = 64);

// Reads all of `text` as a decimal number. Returns false if it is none, or does not fit.
// CLI::detail::lexical_cast would also take 0x10, 010 and, as an unsigned number, -1.
template <class Number>
bool ParseNumber(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// The same for two numbers with a separator between them.
template <class First, class Second>
bool ParsePair(std::string_view text, char separator, First* first, Second* second) {
  const size_t at = text.find(separator);
  return at != text.npos && ParseNumber(text.substr(0, at), first) &&
         ParseNumber(text.substr(at + 1), second);
}

// The values of an option by name.
template <class Value>
using Names = std::vector<std::pair<std::string, Value>>;

// Returns the name of a value, or the first name, which is the default, if none was chosen.
template <class Value>
const char* NameOf(const Names<Value>& names, Value value) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [value](const auto& name) { return name.second == value; });
  return (found == names.end() ? names.begin() : found)->first.c_str();
}

// "a|b|c".
template <class Value>
std::string Choices(const Names<Value>& names) {
  std::string text;
  for (const auto& [name, value] : names) text += (text.empty() ? "" : "|") + name;
  return text;
}

// Adds a choice among `names`, which live as long as the app. CLI::CheckedTransformer would also
// accept the numbers behind the names.
template <class Value>
CLI::Option* AddChoice(CLI::App& app, const std::string& flags, const Names<Value>& names,
                       Value* value, const std::string& help) {
  return AddParsed(app, flags, help, Choices(names), NameOf(names, *value),
                   [&names, value](const std::string& text) {
                     for (const auto& [name, named] : names) {
                       if (text != name) continue;
                       *value = named;
                       return std::string();
                     }
                     return fmt::format("{} is not {}", text, Choices(names));
                   });
}

// Accepts a finite number that `fits`; `what` completes the message "7 is not ...". CLI::Range
// would let NaN pass, and prints the largest double digit by digit.
CLI::Validator Number(const std::string& what, std::function<bool(double)> fits);

// Adds --procs and --transport. `transport_note` is appended to the help of the latter.
void AddRankSource(CLI::App& app, RankSource* source, const std::string& transport_note = "");

// Rejects -1, which conversions to unsigned types let pass.
CLI::Validator NoSign();

}  // namespace onebit::perf
