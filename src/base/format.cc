// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The one file that compiles {fmt}'s code.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include "base/format.h"

#include <iterator>

namespace onebit {

void AppendFormatArgs(std::string* text, fmt::string_view format, fmt::format_args args) {
  fmt::vformat_to(std::back_inserter(*text), format, args);
}

}  // namespace onebit
