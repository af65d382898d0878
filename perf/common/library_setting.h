// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Values of the library's settings, which it has checked and whose defaults it knows.
#pragma once

#include <string>
#include <string_view>

namespace onebit::perf {

// Returns the value in force, as text. Throws ToolError if some variable does not parse.
std::string SettingValue(std::string_view name);

}  // namespace onebit::perf
