// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Kinds of options that tools declare to CLI11.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

namespace onebit::perf {

// Adds an option whose text `parse` turns into a value; `parse` returns why it cannot, or "".
CLI::Option* AddParsed(CLI::App& app, const std::string& flags, const std::string& help,
                       const std::string& type_name, const std::string& default_text,
                       std::function<std::string(const std::string&)> parse);

// A number from `at_least` to `at_most`.
void AddCount(CLI::App& app, const std::string& flags, const std::string& help, int at_least,
              int at_most, int* count);

// Bytes, with K, M or G.
void AddSize(CLI::App& app, const std::string& flags, const std::string& help,
             const std::string& default_text, size_t* size);

}  // namespace onebit::perf
