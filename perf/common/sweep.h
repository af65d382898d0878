// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The whole run of a sweep tool: command line, communicators, rows, reports, exit status.
#pragma once

#include <string_view>

#include "perf/common/collective.h"

namespace onebit::perf {

// What main() returns. `description` is the first line of the help.
int RunSweepTool(int argc, const char* const* argv, const Collective& collective,
                 std::string_view description);

}  // namespace onebit::perf
