// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Common error handling of the main functions of all tools.
#pragma once

#include <functional>
#include <string_view>

namespace onebit::perf {

// The name that this program was started by: where tools are installed, sweeps have a prefix.
std::string_view ToolName();

// Runs `body` and returns its exit status. Turns what it throws into a line on standard error and
// the status that stands for it.
//
// is_speaker: all ranks of a job have the same command line and notice the failure of any of them,
// so only one complains of usage errors and of failures elsewhere.
int RunTool(std::string_view tool, bool is_speaker, const std::function<int()>& body);

}  // namespace onebit::perf
