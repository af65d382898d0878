// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Text from a format string that is checked at compile time. Only format.cc compiles {fmt}'s code,
// which takes seconds, and the library imports no symbol of it.
#pragma once

#include <string>

#include <fmt/core.h>

namespace onebit {

void AppendFormatArgs(std::string* text, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void AppendFormat(std::string* text, fmt::format_string<Args...> format, Args&&... args) {
  AppendFormatArgs(text, format, fmt::make_format_args(args...));
}

template <typename... Args>
std::string Format(fmt::format_string<Args...> format, Args&&... args) {
  std::string text;
  AppendFormatArgs(&text, format, fmt::make_format_args(args...));
  return text;
}

}  // namespace onebit
