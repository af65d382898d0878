// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The whole run of a sweep tool: command line, ranks, rows, reports, exit status.
#pragma once

#include <string_view>

#include "perf/common/collective.h"
#include "perf/common/rank_state.h"
#include "perf/common/sweep_output.h"

namespace onebit::perf {

// Implements main() of a tool of the library. `description` is the first line of the help.
int RunSweepTool(int argc, const char* const* argv, const Collective& collective,
                 std::string_view description);

// Measures, checks and reports row after row, and completes `output`, also when it throws. Returns
// the exit status.
int RunSweep(const Collective& collective, const Options& options, Ranks& ranks,
             SweepOutput& output);

}  // namespace onebit::perf
